# The image of Diapause from files that are there: the agent with its companions, unmodified runsc, and runsc-fast,
# all static.
#
#   make release
#   docker build -t REGISTRY/diapause-agent:1 -f Dockerfile .cache/release/root
#
# It has no base image. `make release` builds all programs from Go modules, with the version of Go that go.mod names,
# and puts them into .cache/release/root. There are no certificates in it: the agent brings authorities of its own.
#
# `docker build` notes times, so this image has another digest each time. The image of the same files whose digest can
# be reproduced is .cache/release/image.tar.
FROM scratch
COPY . /
WORKDIR /
ENTRYPOINT ["/usr/local/bin/diapause-agent"]
