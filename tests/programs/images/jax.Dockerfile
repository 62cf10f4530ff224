# For programs that use JAX, with MNIST in the place where JAX' examples look.
FROM emulator-jax:latest
RUN pip install --no-cache-dir absl-py
COPY data.py digits.csv.gz /data/
RUN python /data/data.py mnist /tmp/jax_example_data 2000 500
