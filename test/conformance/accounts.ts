import { randomBytes } from 'node:crypto';
import type { Admin } from './admin.ts';
import { createBrowser } from './browser.ts';
import type { Person } from './consent.ts';
import type { Send } from './http.ts';
import type { Options } from './service.ts';

const LOGO = 'https://conformance.example/logo.png';
const APP = 'Conformance <suite> & Co';

/** With an admin API, a run makes its own app (unless one is given), user, companies and assets. */
export async function makeAccounts(admin: Admin, given: Options) {
  const app =
    given.clientId === undefined
      ? {
          ...(await admin.addApp({
            name: APP,
            logoUrl: LOGO,
            websiteUrl: 'https://conformance.example/',
            redirectUris: [given.redirectUri],
          })),
          appName: APP,
          logoUrl: LOGO,
        }
      : {};
  const name = randomBytes(4).toString('hex');
  const user = await admin.addUser({
    name: 'Conny Formance',
    email: `conformance-${name}@example.com`,
    password: randomBytes(12).toString('base64url'),
  });
  const company = await admin.addCompany(`Conformance ${name}`, user.id);
  const other = await admin.addCompany(`Second ${name}`, user.id);
  let filled: Promise<void> | undefined;
  return {
    app,
    userId: user.id,
    companyId: company.id,
    companyName: company.name,
    otherId: other.id,
    person: (send: Send): Person => ({ email: user.email, password: user.password, browser: createBrowser(send) }),
    fill: (made: string[]) => {
      filled ??= fill(admin, company.id, made);
      return filled;
    },
  };
}

const KINDS = [
  ['videos', 'video/mp4'],
  ['selects', 'video/quicktime'],
  ['social', 'video/mp4'],
  ['photography', 'image/jpeg'],
  ['graphics', 'image/png'],
  ['audio', 'audio/mpeg'],
  ['documents', 'application/pdf'],
  ['brand assets', 'application/zip'],
] as const;

/** 130 assets of all types, with and without project, some uploaded in the same millisecond. */
async function fill(admin: Admin, companyId: string, made: string[]): Promise<void> {
  const projects = [await admin.addProject(companyId, 'First project'), await admin.addProject(companyId, 'Ünother')];
  const newest = Date.UTC(2025, 5, 1);
  for (let i = 0; i < 130; i++) {
    const [assetType, mimeType] = KINDS[i % KINDS.length]!;
    const project = projects[i % 3];
    const { id } = await admin.addAsset(companyId, {
      name: `${assetType} ${i}`,
      assetType,
      mimeType,
      status: 'ready',
      // In a mixed order, and every fifth in the same millisecond as the next.
      uploadDate: newest - ((i * 37) % 130) * 60_000 - (i % 5 === 0 ? 60_000 : 0),
      ...(project && { projectId: project.id }),
    });
    made.push(id);
  }
}

/** Another user with two other companies. */
export async function newPerson(admin: Admin, send: Send, made: string[]) {
  const name = randomBytes(4).toString('hex');
  const password = randomBytes(12).toString('base64url');
  const user = await admin.addUser({ name: 'Other', email: `other-${name}@example.com`, password });
  made.push(user.id);
  const company = await admin.addCompany(`Other ${name}`, user.id);
  const second = await admin.addCompany(`Other second ${name}`, user.id);
  const browser = createBrowser(send);
  return { email: user.email, password, browser, userId: user.id, companyId: company.id, secondId: second.id };
}
