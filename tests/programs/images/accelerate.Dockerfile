# PyTorch with Accelerate, whose package has programs that test a cluster.
FROM emulator-pytorch:latest
RUN pip install --no-cache-dir accelerate==1.15.0
