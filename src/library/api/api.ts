import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Position } from '../catalogue.ts';
import type { Connection } from '../database/tables.ts';
import { HttpError } from '../http-error.ts';
import { ASSET_TYPES, type Asset, type Company, isTimed, transcriptAt } from '../model.ts';
import type { Service } from '../service.ts';
import { detailOf, summaryOf } from './represent.ts';

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
    limit: WholeNumber.pipe(z.int().min(1, 'must be 1 to 100').max(100, 'must be 1 to 100')).default(50),
    cursor: z.string().transform(readCursor).optional(),
    since: WholeNumber.optional(),
    assetType: z.enum(ASSET_TYPES).optional(),
    projectId: z.string().optional(),
  })
  .refine((query) => query.assetType === undefined || query.projectId === undefined, {
    message: 'assetType and projectId cannot be combined',
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
      const projects = service.catalogue.projects(company.id);
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
      const { assets, more } = service.catalogue.page(query);
      const last = assets.at(-1);
      return {
        assets: assets.map((asset) => summaryOf(service, asset)),
        ...(more && last ? { nextCursor: writeCursor(last) } : lastCursor(request, cursor ?? last)),
      };
    },
  );

  server.get('/api/v1/assets/:assetId', { config: { endpoint: 'asset' } }, async (request: AssetRequest) =>
    detailOf(service, readableAsset(service, request)),
  );

  server.get(
    '/api/v1/assets/:assetId/transcript',
    { config: { endpoint: 'transcript' } },
    async (request: AssetRequest, reply) => sendTranscript(service, request, reply),
  );
}

function sendTranscript(service: Service, request: AssetRequest, reply: FastifyReply): unknown {
  const asset = readableAsset(service, request);
  const { format } = parse(TranscriptQuery, request);
  const isAvailable = isTimed(asset) && asset.hasTranscript !== false;
  const transcript = isAvailable ? transcriptAt(asset, service.clock.now()) : null;
  if (!transcript) throw new HttpError(404, 'not_found', 'This asset has no transcript, or it does not exist yet.');
  if ('noSpeech' in transcript) return { assetId: asset.id, noSpeech: true };
  if (format === 'json') return { assetId: asset.id, ...transcript };
  return format === 'vtt'
    ? reply.type('text/vtt; charset=utf-8').send(transcript.vtt)
    : reply.type('text/plain; charset=utf-8').send(transcript.text);
}

function bearerOf(request: FastifyRequest): string | undefined {
  return /^Bearer +([\w.~+/=-]+)$/i.exec(request.headers.authorization ?? '')?.[1];
}

/** The connection of a request's Bearer token. */
export function connectionOf(service: Service, request: FastifyRequest): Connection | undefined {
  const token = bearerOf(request);
  return token === undefined ? undefined : service.connections.ofAccessToken(token);
}

/** Section 5: every request needs a valid Bearer token. */
function authorized(service: Service, request: FastifyRequest): Connection {
  const connection = connectionOf(service, request);
  if (!connection) {
    const challenge = bearerOf(request) ? 'Bearer error="invalid_token"' : 'Bearer';
    throw new HttpError(
      401,
      'invalid_token',
      'The access token is missing, has expired, or its connection has ended.',
      {
        'www-authenticate': challenge,
      },
    );
  }
  return connection;
}

/** Section 4.4: the granted companies that the user can still read. */
export function readableCompanies(service: Service, connection: Connection): Company[] {
  const companies = service.accounts.companiesOf(connection.userId);
  const granted = connection.companies;
  return granted === null ? companies : companies.filter((company) => granted.includes(company.id));
}

/** A company or asset that the user may not read answers like one that does not exist. */
function readableCompany(service: Service, request: CompanyRequest): Company {
  const companies = readableCompanies(service, authorized(service, request));
  const company = companies.find((company) => company.id === request.params.companyId);
  if (!company) throw new HttpError(404, 'not_found', 'This company does not exist.');
  return company;
}

function readableAsset(service: Service, request: AssetRequest): Asset {
  const companies = readableCompanies(service, authorized(service, request));
  const asset = service.catalogue.find(request.params.assetId);
  if (!asset || !companies.some((company) => company.id === asset.companyId)) {
    throw new HttpError(404, 'not_found', 'This asset does not exist.');
  }
  return asset;
}

function parse<T extends z.ZodType>(schema: T, request: FastifyRequest): z.output<T> {
  const parsed = schema.safeParse(request.query);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!;
  throw new HttpError(400, 'invalid_request', [...path, message].join(': '));
}

/** A position, not a page number: uploads between two requests neither hide nor repeat an asset. */
function writeCursor({ uploadDate, id }: Position): string {
  return Buffer.from(JSON.stringify([uploadDate, id])).toString('base64url');
}

function readCursor(cursor: string, context: z.RefinementCtx<string>): Position {
  try {
    const [uploadDate, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString());
    if (typeof uploadDate === 'number' && typeof id === 'string') return { uploadDate, id };
  } catch {}
  context.addIssue('is not a cursor of this library');
  return z.NEVER;
}

/** The specification does not define the last page's cursor. It is null unless a fault rule sets another one. */
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
