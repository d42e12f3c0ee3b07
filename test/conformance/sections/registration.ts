import { check, Failure, NotTried, same, that } from '../check.ts';
import { isConsent } from '../consent.ts';
import { buttonOf, picturesOf } from '../html.ts';
import { describeAnswer, isRefusal } from '../http.ts';
import { InvalidGrant } from '../shapes.ts';
import type { World } from '../world.ts';

const WEBSITE = 'https://conformance.example/';

async function consentPage(world: World) {
  const page = (await world.pagesOf()).findLast(isConsent);
  if (!page) throw new NotTried('this service shows no consent page that can be read without JavaScript');
  return page;
}

async function refuses(world: World, what: string, app: object): Promise<void> {
  const admin = world.needAdmin('registration happens out of band; --admin can register');
  const whole = { name: 'Refused', websiteUrl: WEBSITE, redirectUris: ['https://conformance.example/back'] };
  const answer = await admin.tryApp({ ...whole, ...app });
  that(`a refusal of ${what}`, isRefusal(answer), describeAnswer(answer).replace(/svcs_[\w-]+/, 'svcs_…'));
}

export const registration = [
  check('2.1', 'app-name-shown', 'The consent screen shows the name of the app.', async (world) => {
    const { appName } = world.options;
    const page = await consentPage(world);
    if (appName === undefined) throw new NotTried('needs --app-name');
    that(`${appName} on the consent page`, page.text.includes(appName), page.text.slice(0, 300));
  }),

  check('2.1', 'logo-shown', 'The consent screen shows the logo of the app.', async (world) => {
    const { logoUrl } = world.options;
    const page = await consentPage(world);
    if (logoUrl === undefined) throw new NotTried('needs --logo-url');
    const pictures = picturesOf(page);
    const isShown = pictures.some((src) => src === logoUrl || src.includes(encodeURIComponent(logoUrl)));
    that(`a picture of ${logoUrl} on the consent page`, isShown, pictures);
  }),

  check(
    '2.1',
    'listed-in-profile',
    'The Connected Apps list of the user shows the app and its logo.',
    async (world) => {
      const person = world.needPages();
      const { appName, logoUrl, app, profile } = world.options;
      if (appName === undefined) throw new NotTried('needs --app-name');
      await world.session();
      const { page } = await person.browser.open(app + profile);
      if (!page || page.status >= 400)
        throw new NotTried(`there is no profile page at ${profile}; --profile says where`);
      that(`${appName} on the profile page`, page.text.includes(appName), page.text.slice(0, 300));
      const pictures = picturesOf(page);
      if (logoUrl !== undefined) that(`a picture of ${logoUrl}`, pictures.includes(logoUrl), pictures);
    },
  ),

  check('2.1', 'logo-https', 'A logo is an https link.', (world) =>
    refuses(world, 'a logo at http://', { logoUrl: 'http://conformance.example/logo.png' }),
  ),

  check('2.1', 'website-required', 'The website of an app is required.', (world) =>
    refuses(world, 'an app without a website', { websiteUrl: undefined }),
  ),

  check('2.1', 'redirect-uri-required', 'An app has one or more redirect URIs.', (world) =>
    refuses(world, 'an app without redirect URIs', { redirectUris: [] }),
  ),

  check('2.1', 'redirect-uri-https', 'A redirect URI is https, or http for localhost only.', async (world) => {
    const admin = world.needAdmin('registration happens out of band; --admin can register');
    await refuses(world, 'http://elsewhere', { redirectUris: ['http://conformance.example/back'] });
    for (const redirectUri of ['https://conformance.example/back', 'http://localhost:8080/back']) {
      const answer = await admin.tryApp({ name: 'Taken', websiteUrl: WEBSITE, redirectUris: [redirectUri] });
      if (answer.status >= 300) throw new Failure(`${redirectUri} to be taken`, describeAnswer(answer));
    }
  }),

  check('2.1', 'several-redirect-uris', 'Each of several registered redirect URIs works.', async (world) => {
    const admin = world.needAdmin('registration happens out of band; --admin can register');
    const redirectUris = ['http://localhost:9/first', 'https://conformance.example/second?a=b'];
    const client = await admin.addApp({ name: 'Two addresses', websiteUrl: WEBSITE, redirectUris });
    for (const redirectUri of redirectUris) await world.grant({ client, redirectUri });
  }),

  check(
    '2.1',
    'client-id-and-secret',
    'The service returns a client_id and a client_secret, svcs_….',
    async (world) => {
      const { clientId, clientSecret } = world.client();
      that('a client_id', clientId.length > 0, clientId);
      that('a client_secret that begins with svcs_', clientSecret.startsWith('svcs_'), clientSecret.slice(0, 5));
    },
  ),

  check('2.2', 'secret-rotation', 'A client secret works until the service rotates it.', async (world) => {
    const admin = world.needAdmin('rotating the secret of a real app would break it; --admin has an app for it');
    const app = { name: 'Rotated', websiteUrl: WEBSITE, redirectUris: ['https://conformance.example/back'] };
    const old = await admin.addApp(app);
    const { clientSecret } = await admin.rotateSecret(old.clientId);
    that('another secret', clientSecret !== old.clientSecret && clientSecret.startsWith('svcs_'), 'the old one');
    const before = await world.refresh('svcr_unknown', { client: old });
    that('the old secret to be refused as such', !InvalidGrant.safeParse(before.json).success, describeAnswer(before));
    const after = await world.refresh('svcr_unknown', { client: { ...old, clientSecret } });
    same(
      'the error for an unknown token with the new secret',
      (after.json as { error?: string })?.error,
      'invalid_grant',
    );
  }),

  check('4.1', 'allow-access', 'The consent screen has a button "Allow access".', async (world) => {
    const page = await consentPage(world);
    that('a button "Allow access"', buttonOf(page, /^allow access$/i) !== undefined, page.text.slice(0, 300));
  }),
];
