# TensorFlow's model garden, with what its recommendation models import.
FROM emulator-cpu:latest
RUN pip install --no-cache-dir tensorflow-cpu==2.21.0 tensorboard gin-config tensorflow-hub immutabledict \
        psutil py-cpuinfo pyyaml tf_slim six pandas scipy sentencepiece tensorflow-datasets \
        tensorflow-model-optimization && \
    # Its own requirements have an older TensorFlow.
    pip install --no-cache-dir --no-deps tf-models-official==2.20.0 tensorflow-recommenders
