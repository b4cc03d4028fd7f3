# The image of Diapause: the agent with its companions, and unmodified runsc, all static. In a
# cluster its init container installs the shim, runsc and the sidecar on the node (diapause-agent
# install), and the agent runs from it. The same sources give the same programs; with
# SOURCE_DATE_EPOCH set and --output type=image,rewrite-timestamp=true, the same image.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0
RUN mkdir -p /out/gvisor-bin && \
    version=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor) && \
    go build -trimpath -buildvcs=false -o /out/ \
      -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
      ./cmd/... gvisor.dev/gvisor/runsc && \
    mv /out/checkpointgofer /out/gvisor-bin/

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/diapause-agent"]
