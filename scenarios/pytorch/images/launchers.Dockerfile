# PyTorch with Lightning and Accelerate.
FROM emulator-pytorch:latest
RUN pip install --no-cache-dir lightning==2.6.6 accelerate==1.15.0
