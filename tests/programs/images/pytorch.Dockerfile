# For programs that use PyTorch and its libraries, with data in the places where they look.
FROM emulator-pytorch:latest
RUN pip install --no-cache-dir lightning==2.6.6 "jsonargparse[signatures]" \
        tensorboard tensorboardX torchmetrics pillow requests && \
    # Later wheels of the default index need the CUDA build of PyTorch. Of this one, everything
    # works that is written in Python.
    pip install --no-cache-dir --no-deps torchvision==0.15.2
COPY data.py digits.csv.gz /data/
# Programs run in /job. PyTorch's and Kubeflow's examples load ../data; Lightning's examples load
# ../../../Datasets, and their library ./data.
RUN python /data/data.py mnist /data/FashionMNIST/raw 2000 500 && \
    mkdir /data/MNIST && ln -s ../FashionMNIST/raw /data/MNIST/raw && \
    python /data/data.py mnist /Datasets/MNIST/raw 60000 10000 && \
    mkdir /job && ln -s /Datasets /job/data && \
    python /data/data.py images /data/images 32 16
