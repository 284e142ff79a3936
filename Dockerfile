# An image that runs lockstep's programs on CPUs: docker build -t lockstep . && docker run --rm lockstep
# For NVIDIA GPUs: docker build --build-arg EXTRAS=[cuda,images] -t lockstep .
FROM python:3.13-slim

# What oneDNN needs, which computes convolutions on CPUs.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*

ARG EXTRAS=[images]

COPY pyproject.toml README.md LICENSE CITATION.cff /src/
COPY src /src/src
# The demo's program is a link into examples/.
COPY examples /src/examples
RUN python -m pip install --no-cache-dir "/src${EXTRAS}" && rm -r /src

# Not root: what a program writes belongs to the user who trains.
RUN useradd --create-home train
USER train
WORKDIR /home/train

ENTRYPOINT ["lockstep"]
CMD ["demo"]
