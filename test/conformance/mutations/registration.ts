import { AUTHORIZE, instead, json, type Mutation, page, status } from './faults.ts';

export const registration: Mutation[] = [
  {
    check: 'app-name-shown',
    breaks: 'the consent page says "an app"',
    fault: page(AUTHORIZE, /Conformance &#60;suite&#62; &#38; Co/g, 'an app'),
  },
  { check: 'logo-shown', breaks: 'the consent page has no logo', fault: page(AUTHORIZE, /<img[^>]*>/g, '') },
  {
    check: 'listed-in-profile',
    breaks: 'the profile lists no app',
    fault: page(/\/profile$/, /<div class="row">.*<\/form><\/div>/gs, ''),
  },
  {
    check: 'listed-in-profile',
    breaks: 'the profile shows no logo',
    fault: page(/\/profile$/, /<img[^>]*>/g, ''),
  },
  ...['logo-https', 'website-required', 'redirect-uri-required', 'redirect-uri-https'].map((check) => ({
    check,
    breaks: 'every registration is accepted',
    fault: status(/\/apps$/, 400, 200, { clientId: 'app', clientSecret: 'svcs_x' }),
    isAdmin: true,
  })),
  {
    check: 'redirect-uri-https',
    breaks: 'http://localhost cannot be registered',
    isAdmin: true,
    fault: instead(/\/apps$/, ({ body }) => (body.includes('http://localhost') ? json(400, {}) : undefined)),
  },
  {
    check: 'several-redirect-uris',
    breaks: 'only the first redirect URI works',
    fault: instead(AUTHORIZE, ({ query }) =>
      query.get('redirect_uri')?.includes('/second') ? json(400, {}) : undefined,
    ),
  },
  {
    check: 'client-id-and-secret',
    breaks: 'the secret has another prefix',
    fault: (world) => {
      const { clientSecret } = world.options;
      world.options.clientSecret = 'secret_x';
      return { repair: () => Object.assign(world.options, { clientSecret }) };
    },
  },
  {
    check: 'secret-rotation',
    breaks: 'the old secret still works after a rotation',
    isAdmin: true,
    fault: instead(/\/secret$/, () => json(200, { clientSecret: 'svcs_new' })),
  },
  { check: 'allow-access', breaks: 'the button says "Approve"', fault: page(AUTHORIZE, /Allow access/g, 'Approve') },
];
