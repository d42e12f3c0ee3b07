# asset-mirror on Kubernetes

Web processes, and workers that mirror. PostgreSQL, Redis and the bucket are yours:
[Deployment](../../docs/operate/deployment.md) says what they may be and how to configure them.

```sh
kubectl create secret generic mirror \
  --from-literal=DATABASE_URL='postgres://user:password@postgres/mirror?sslmode=verify-full' \
  --from-literal=REDIS_URL='redis://:password@redis:6379' \
  --from-literal=ENCRYPTION_KEYS="$(openssl rand -base64 32)" \
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

Keep a copy of `ENCRYPTION_KEYS` apart from the database: without it, every user has to connect again.

## What is good to know

- **Migrations** run at the start of each process, under a lock in the database: the first one brings the schema up to date, the
  others wait. There is no hook, for a hook runs before the new settings and secrets are there, and nobody sees it fail. Old
  processes go on beside the new schema ([upgrades](../../docs/operate/upgrades.md)).
- **Stopping:** the pods have `SHUTDOWN_GRACE`, the sleep before it, and 65 seconds more, which a token that is just being renewed may take. What a worker has not ended by then is
  handed back, spends no attempt, and goes on in another from the parts that are stored.
- **Probes** ask the metrics port, which every process has: `/healthz` whether it lives, `/readyz` whether database, queue and bucket
  answer. Readiness of workers holds a rollout up when the new ones cannot work; nothing else depends on it.
- **Scaling:** a worker has `TRANSFER_CONCURRENCY` assets in transfer, a connection has `CONNECTION_CONCURRENCY` in all of them. More
  workers help more connections; for one, raise the latter. `BANDWIDTH_LIMIT` is for each process. Workers that are taken away
  lose nothing, but for the parts in flight.
- **Storage in a directory** (`STORAGE_URL: file:///mirror`) needs a volume that all pods may write to (ReadWriteMany):
  `extraVolumes` and `extraVolumeMounts`.
- **Alerts and dashboard** are those of `ops/`, which this chart holds as links; `helm package` takes the files.

## Values

{{values}}

Made by `node helm/generate.ts` of values.yaml, as is values.schema.json, by which Helm refuses what is not known here.
