import { asked, body, type Json, ME, type Mutation, PROJECTS, status } from './faults.ts';

export const resources: Mutation[] = [
  {
    check: 'me',
    breaks: 'me has no email',
    fault: body(ME, (me) => ({ ...me, user: { ...me.user, email: undefined } })),
  },
  {
    check: 'me',
    breaks: 'me lists a company twice',
    fault: body(ME, (me) => ({ ...me, companies: [...me.companies, me.companies[0]] })),
  },
  { check: 'me-readable', breaks: 'a company of me has no projects endpoint', fault: status(PROJECTS, 200, 404, {}) },
  {
    check: 'me-current',
    breaks: 'me stays as it was at the consent',
    fault: () => {
      let first: Buffer | undefined;
      return {
        answer(answered, { path }) {
          if (!ME.test(path)) return;
          first ??= answered.body;
          answered.body = first;
        },
      };
    },
  },
  {
    check: 'me-current',
    breaks: 'companies can be read after access was revoked',
    fault: status(/\/api\/v1\/(companies|assets)\//, 404, 200, {}),
  },
  {
    check: 'projects',
    breaks: 'a project has no status',
    fault: body(PROJECTS, ({ projects }) => ({
      projects: projects.map((project: Json) => ({ ...project, status: undefined })),
    })),
  },
  {
    check: 'unknown-company',
    breaks: 'an unknown company has an empty list',
    fault: status(/\/companies\//, 404, 200, { projects: [], assets: [] }),
  },
  {
    check: 'read-only',
    breaks: 'assets can be deleted',
    fault: () => ({
      answer(answered, { method, path }) {
        if (method === 'DELETE' && path.startsWith('/api/v1')) answered.status = 204;
      },
    }),
  },
  {
    check: 'version',
    breaks: 'the API also works without its version',
    fault: asked(/^\/api\/me$/, (it) => Object.assign(it, { path: '/api/v1/me' })),
  },
];
