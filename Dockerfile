# Interplay with a GPU:
#
#   docker build -t interplay .
#   docker run --rm --gpus all -v "$PWD/runs:/interplay/runs" interplay demo
#   docker run --rm --gpus all -v "$PWD/runs:/interplay/runs" -v "$HOME/.cache/huggingface:/cache/huggingface" \
#       interplay train recipes/math/pair.toml policies.agent.base=Qwen/Qwen2.5-0.5B-Instruct
#   docker run --rm --network host -v "$PWD/runs:/interplay/runs" interplay view --no-browser
#
# The host needs NVIDIA's driver and container toolkit. PyTorch's wheels carry their own CUDA libraries, so the image
# needs none of them but the driver's interface. A compiler is needed at run time: Triton compiles a launcher for its kernels.
# Models are read from and kept in /cache. The viewer listens on 127.0.0.1 only, so it needs the network of the host.
#
# The image was not built to its end. buildah ran it on an Ubuntu 24.04 that debootstrap had made (x86_64), up to the
# installation of PyTorch: the packages of Ubuntu were installed, and pip found and downloaded PyTorch with CUDA 13 in the
# versions of constraints.txt for Python 3.12. The second pip install and a container with a GPU were not run.
FROM ubuntu:24.04

RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-dev python3-venv gcc libc6-dev ca-certificates \
    && rm -rf /var/lib/apt/lists/*

ENV VIRTUAL_ENV=/venv PATH=/venv/bin:$PATH \
    HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
# PyTorch first: it is large, and this layer stays the same while the sources change.
RUN python3 -m venv /venv && pip install --no-cache-dir -c constraints.txt torch
COPY src ./src
COPY recipes ./recipes
RUN pip install --no-cache-dir -c constraints.txt '.[data,gguf,math,optimizers,remote,senses,serving,tensorboard]'

WORKDIR /interplay
VOLUME ["/interplay/runs", "/cache"]
ENTRYPOINT ["interplay"]
CMD ["--help"]
