#!/bin/sh
# Usage: secrets.sh [DIRECTORY]
# Creates the secrets of docker-compose.yml that are missing. Only the owner can enter the directory. The files in it are
# readable, because each service reads them as its own user.
set -eu
umask 022
mkdir -p "${1:-secrets}"
cd "${1:-secrets}"
chmod 700 .

create() {
  name=$1
  shift
  [ -s "$name" ] || "$@" >"$name"
}
create admin_token openssl rand -base64 32
create encryption_keys openssl rand -base64 32
create signing_key openssl rand -base64 32
for name in postgres_password redis_password s3_secret_key; do create "$name" openssl rand -hex 24; done
create database_url printf 'postgres://asset_mirror:%s@postgres:5432/asset_mirror\n' "$(cat postgres_password)"
create redis_url printf 'redis://:%s@redis:6379\n' "$(cat redis_password)"
create aws_credentials printf '[default]\naws_access_key_id = asset-mirror\naws_secret_access_key = %s\n' "$(cat s3_secret_key)"
# Empty without an OpenID provider.
[ -e oidc_client_secret ] || : >oidc_client_secret
[ -s library_client_secret ] || echo "Write the client_secret of the app registration to $PWD/library_client_secret."
