# asset-mirror on Kubernetes

The chart installs web processes (dashboard, operator API, connect flow) and workers, which mirror. You provide PostgreSQL, Redis
and the bucket: see [Deployment](../../docs/operate/deployment.md).

```sh
kubectl create secret generic mirror \
  --from-literal=DATABASE_URL='postgres://user:password@postgres/mirror?sslmode=verify-full' \
  --from-literal=REDIS_URL='redis://:password@redis:6379' \
  --from-literal=ENCRYPTION_KEYS="$(openssl rand -base64 32)" \
  --from-literal=SIGNING_KEY="$(openssl rand -base64 32)" \
  --from-literal=ADMIN_TOKEN="$(openssl rand -base64 32)" \
  --from-literal=LIBRARY_CLIENT_ID=… --from-literal=LIBRARY_CLIENT_SECRET=…

helm install mirror helm/asset-mirror --values my-values.yaml
helm test mirror
```

```yaml
existingSecret: mirror
config:
  LIBRARY_API_URL: https://library.example.com
  LIBRARY_APP_URL: https://library.example.com
  PUBLIC_URL: https://mirror.example.com
  STORAGE_URL: s3://media/copy
  S3_REGION: eu-central-1
serviceAccount:
  annotations:
    eks.amazonaws.com/role-arn: arn:aws:iam::123456789012:role/mirror
ingress:
  enabled: true
```

Keep a copy of `ENCRYPTION_KEYS` apart from the database. Without it, every user has to connect again.

## Good to know

- **Secrets:** pods get them as environment variables from the Secret. If a driver mounts them as files instead, set their paths:
  `config.DATABASE_URL_FILE: /run/secrets/database-url`, with `extraVolumes` and `extraVolumeMounts`.
- **Migrations** run when a process starts, under a lock in the database: the first process migrates, the others wait. There is no
  Helm hook. Old processes keep working with the new schema ([upgrades](../../docs/operate/upgrades.md)).
- **Restarts:** changed settings, `secrets` and images restart the pods. A new chart version alone does not.
- **Stopping:** a pod has `preStopSeconds`, `SHUTDOWN_GRACE` and 65 more seconds for a running token refresh. Work that a
  worker has not finished by then goes to another worker. It spends no attempt, and continues from the stored parts.
- **Probes** use the metrics port: `/healthz` for liveness, `/readyz` for readiness. Workers are ready if database, queue and bucket
  answer; a rollout waits for that. Web processes do not need the bucket, so the dashboard and the connect flow stay reachable
  while it fails.
- **Scaling:** a worker has up to `TRANSFER_CONCURRENCY` assets in transfer, and a connection up to `CONNECTION_CONCURRENCY` over all
  workers. More workers help if they use a full core. `BANDWIDTH_LIMIT` is per process. Removing workers loses only the parts in flight.
- **Storage in a directory** (`STORAGE_URL: file:///mirror`) needs a volume that all pods can write to (ReadWriteMany):
  `extraVolumes` and `extraVolumeMounts`.
- **Gateway API:** `httpRoute` needs the CRDs of the Gateway API, version 1. The Gateway terminates TLS.
- **Alerts and dashboard** are links to the files in `ops/`. `helm package` includes the files.

## Values

{{values}}

`node helm/generate.ts` generates this page and values.schema.json from values.yaml. Helm refuses values that the schema does not
know.
