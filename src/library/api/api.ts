import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Position } from '../catalogue.ts';
import { ASSET_TYPES, type Asset, type Company, isTimed, transcriptAt } from '../model.ts';
import type { Connection } from '../oauth/connections.ts';
import { Refusal, type Service } from '../service.ts';
import { detailed, listed } from './represent.ts';

type Of<Params> = FastifyRequest<{ Params: Params }>;
type CompanyRequest = Of<{ companyId: string }>;
type AssetRequest = Of<{ assetId: string }>;

const WholeNumber = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);

/** Section 4.6. */
const ListQuery = z
  .object({
    limit: WholeNumber.pipe(z.int().min(1, 'is 1 to 100').max(100, 'is 1 to 100')).default(50),
    cursor: z.string().transform(readCursor).optional(),
    since: WholeNumber.optional(),
    assetType: z.enum(ASSET_TYPES).optional(),
    projectId: z.string().optional(),
  })
  .refine((query) => query.assetType === undefined || query.projectId === undefined, {
    message: 'assetType and projectId are not used together',
  });

const TranscriptQuery = z.object({ format: z.enum(['vtt', 'txt', 'json']).default('vtt') });

/** Sections 4.4 to 4.8. */
export function registerApi(server: FastifyInstance, service: Service): void {
  server.get('/api/v1/me', { config: { endpoint: 'me' } }, async (request) => {
    const connection = authorized(service, request);
    return { user: service.accounts.user(connection.userId), companies: readableCompanies(service, connection) };
  });

  server.get(
    '/api/v1/companies/:companyId/projects',
    { config: { endpoint: 'projects' } },
    async (request: CompanyRequest) => {
      const company = readableCompany(service, request);
      const projects = await service.catalogue.projects(company.id);
      return { projects: projects.map(({ id, name, status }) => ({ id, name, status })) };
    },
  );

  server.get(
    '/api/v1/companies/:companyId/assets',
    { config: { endpoint: 'assets' } },
    async (request: CompanyRequest) => {
      const company = readableCompany(service, request);
      const { limit, cursor = null, since = null, assetType = null, projectId = null } = parse(ListQuery, request);
      const query = { companyId: company.id, limit, after: cursor, since, assetType, projectId };
      const { assets, more } = await service.catalogue.page(query);
      const last = assets.at(-1);
      return {
        assets: assets.map((asset) => listed(service, asset)),
        ...(more && last ? { nextCursor: writeCursor(last) } : lastCursor(request, cursor ?? last)),
      };
    },
  );

  server.get('/api/v1/assets/:assetId', { config: { endpoint: 'asset' } }, async (request: AssetRequest) =>
    detailed(service, await readableAsset(service, request)),
  );

  server.get(
    '/api/v1/assets/:assetId/transcript',
    { config: { endpoint: 'transcript' } },
    async (request: AssetRequest, reply) => sendTranscript(service, request, reply),
  );
}

async function sendTranscript(service: Service, request: AssetRequest, reply: FastifyReply): Promise<unknown> {
  const asset = await readableAsset(service, request);
  const { format } = parse(TranscriptQuery, request);
  const isAvailable = isTimed(asset) && asset.hasTranscript !== false;
  const transcript = isAvailable ? transcriptAt(asset, service.clock.now()) : null;
  if (!transcript) throw new Refusal(404, 'not_found', 'There is no transcript of this asset, or not yet.');
  if ('noSpeech' in transcript) return { assetId: asset.id, noSpeech: true };
  if (format === 'json') return { assetId: asset.id, ...transcript };
  return format === 'vtt'
    ? reply.type('text/vtt; charset=utf-8').send(transcript.vtt)
    : reply.type('text/plain; charset=utf-8').send(transcript.text);
}

function bearerOf(request: FastifyRequest): string | undefined {
  return /^Bearer +([\w.~+/=-]+)$/i.exec(request.headers.authorization ?? '')?.[1];
}

/** The live connection whose Bearer token a request carries. */
export function connectionOf(service: Service, request: FastifyRequest): Connection | undefined {
  const token = bearerOf(request);
  return token === undefined ? undefined : service.connections.ofAccessToken(token);
}

/** Section 5: a Bearer token whose connection lives. */
function authorized(service: Service, request: FastifyRequest): Connection {
  const connection = connectionOf(service, request);
  if (!connection) {
    const challenge = bearerOf(request) ? 'Bearer error="invalid_token"' : 'Bearer';
    throw new Refusal(401, 'invalid_token', 'The access token is missing, has expired or was ended.', {
      'www-authenticate': challenge,
    });
  }
  return connection;
}

/** Section 4.4: what the user granted, as far as the user can still read it. */
export function readableCompanies(service: Service, connection: Connection): Company[] {
  const companies = service.accounts.companiesOf(connection.userId);
  const granted = connection.companies;
  return granted === null ? companies : companies.filter((company) => granted.includes(company.id));
}

/** A company or asset that may not be read is as unknown as one that does not exist. */
function readableCompany(service: Service, request: CompanyRequest): Company {
  const companies = readableCompanies(service, authorized(service, request));
  const company = companies.find((company) => company.id === request.params.companyId);
  if (!company) throw new Refusal(404, 'not_found', 'There is no such company.');
  return company;
}

async function readableAsset(service: Service, request: AssetRequest): Promise<Asset> {
  const companies = readableCompanies(service, authorized(service, request));
  const asset = await service.catalogue.find(request.params.assetId);
  if (!asset || !companies.some((company) => company.id === asset.companyId)) {
    throw new Refusal(404, 'not_found', 'There is no such asset.');
  }
  return asset;
}

function parse<T extends z.ZodType>(schema: T, request: FastifyRequest): z.output<T> {
  const parsed = schema.safeParse(request.query);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!;
  throw new Refusal(400, 'invalid_request', [...path, message].join(': '));
}

/** A place in the listing, not a number of pages: uploads that arrive in between move nothing. */
function writeCursor({ uploadDate, id }: Position): string {
  return Buffer.from(JSON.stringify([uploadDate, id])).toString('base64url');
}

function readCursor(cursor: string, context: z.RefinementCtx<string>): Position {
  try {
    const [uploadDate, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString());
    if (typeof uploadDate === 'number' && typeof id === 'string') return { uploadDate, id };
  } catch {}
  context.addIssue('is no cursor of this library');
  return z.NEVER;
}

/** Nowhere is it said how the last page says so; null, unless a fault rule wants to see another way. */
function lastCursor(request: FastifyRequest, repeated: Position | undefined): { nextCursor?: string | null } {
  switch (request.fault?.nextCursor) {
    case 'absent':
      return {};
    case 'empty':
      return { nextCursor: '' };
    case 'repeat':
      return { nextCursor: repeated ? writeCursor(repeated) : null };
    default:
      return { nextCursor: null };
  }
}
