import { check, Failure, NotTried, same, that } from '../check.ts';
import { describeAnswer, isRefusal } from '../http.ts';
import { segment } from '../reading.ts';
import { Me, Projects } from '../shapes.ts';
import type { World } from '../world.ts';

async function companyWithProjects(world: World): Promise<string> {
  const company = world.own ? await world.listed() : undefined;
  for (const { id } of company ? [company] : await world.companies()) {
    const { projects } = await world.read(`/companies/${segment(id)}/projects`, Projects);
    if (projects.length > 0) return id;
  }
  throw new NotTried('no company of this user has a project');
}

export const resources = [
  check(
    '2.4',
    'me',
    'me says who connected, by id, name and email, and which companies are readable.',
    async (world) => {
      const me = await world.read('/me', Me);
      const ids = me.companies.map(({ id }) => id);
      same('companies without their doubles', new Set(ids).size, ids.length);
      if (world.person) same('the email', me.user.email.toLowerCase(), world.person.email.toLowerCase());
    },
  ),

  check('4.4', 'me-readable', 'Projects and assets of every company in me are readable.', async (world) => {
    for (const { id } of (await world.companies()).slice(0, 20)) {
      await world.read(`/companies/${segment(id)}/projects`, Projects);
      await world.page(id, { limit: 1 });
    }
  }),

  check(
    '4.4',
    'me-current',
    'A company disappears from me at once when the user loses access to it, and returns with it.',
    async (world) => {
      const admin = world.needAdmin();
      const person = await world.newPerson();
      const { access_token } = await world.grant({ person });
      const companies = async () => {
        const answer = await world.get('/me', access_token);
        if (answer.status !== 200) throw new Failure('status 200 of /me', describeAnswer(answer));
        return Me.parse(answer.json)
          .companies.map(({ id }) => id)
          .sort();
      };
      const assetId = await world.upload(
        { name: 'x.pdf', mimeType: 'application/pdf', assetType: 'documents' },
        person.companyId,
      );
      const both = [person.companyId, person.secondId].sort();
      same('the companies before', await companies(), both);
      await admin.setAccess(person.companyId, person.userId, false);
      same('the companies after one was lost', await companies(), [person.secondId]);
      for (const path of [
        `/companies/${person.companyId}/assets`,
        `/companies/${person.companyId}/projects`,
        `/assets/${assetId}`,
      ]) {
        const answer = await world.get(path, access_token);
        that('a refusal of what was lost', isRefusal(answer), describeAnswer(answer));
      }
      await admin.setAccess(person.companyId, person.userId, true);
      same('the companies after it came back', await companies(), both);
    },
  ),

  check('2.5', 'projects', 'Projects have an id, a name and a status.', async (world) => {
    const id = await companyWithProjects(world);
    const { projects } = await world.read(`/companies/${segment(id)}/projects`, Projects);
    same('ids without their doubles', new Set(projects.map((project) => project.id)).size, projects.length);
    world.observe(`project status: ${[...new Set(projects.map(({ status }) => status))].join(', ')}`);
  }),

  check(
    '4.5',
    'unknown-company',
    'Projects and assets of a company the user cannot read are not given.',
    async (world) => {
      const ids = ['cmp_unknown'];
      if (world.admin) ids.push((await world.newPerson()).companyId);
      for (const id of ids) {
        for (const path of [`/companies/${id}/projects`, `/companies/${id}/assets`]) {
          const answer = await world.get(path);
          that('a refusal', isRefusal(answer), describeAnswer(answer));
          world.observe(`a company that is not readable: status ${answer.status}`);
        }
      }
    },
  ),

  check('1', 'read-only', 'Resource endpoints accept only GET.', async (world) => {
    const { access_token } = await world.session();
    const [company] = await world.companies();
    const base = `/companies/${segment(company!.id)}`;
    const attempts: ['POST' | 'PUT' | 'PATCH' | 'DELETE', string][] = [
      ['POST', '/me'],
      ['POST', `${base}/projects`],
      ['POST', `${base}/assets`],
      ['DELETE', '/assets/ast_nobody_has_this_id'],
      ['PATCH', '/assets/ast_nobody_has_this_id'],
    ];
    if (world.admin) {
      const id = await world.upload({ name: 'x.pdf', mimeType: 'application/pdf', assetType: 'documents' });
      attempts.push(['DELETE', `/assets/${id}`], ['PUT', `/assets/${id}`]);
    }
    for (const [method, path] of attempts) {
      const answer = await world.send(`${world.options.api}/api/v1${path}`, {
        method,
        headers: { authorization: `Bearer ${access_token}` },
      });
      that('a refusal', isRefusal(answer), describeAnswer(answer));
    }
  }),

  check(
    '9',
    'version',
    'The resource API is under /api/v1/ alone, OAuth under /api/oauth/ without a version.',
    async (world) => {
      const { access_token } = await world.session();
      const headers = { authorization: `Bearer ${access_token}` };
      for (const path of ['/api/me', '/api/v0/me', '/me']) {
        const answer = await world.send(world.options.api + path, { headers });
        that(`no user at ${path}`, !Me.safeParse(answer.json).success, describeAnswer(answer));
      }
      same('the status of /api/v1/me', (await world.get('/me')).status, 200);
      const { status } = await world.send(`${world.options.api}/api/v1/oauth/token`, { method: 'POST' });
      that('no token endpoint under a version', status >= 400, status);
    },
  ),
];
