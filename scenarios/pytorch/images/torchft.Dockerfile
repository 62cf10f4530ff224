# PyTorch with torchft: its lighthouse, and its process groups and managers.
FROM emulator-pytorch:latest
RUN pip install --no-cache-dir torchft==0.2.0
