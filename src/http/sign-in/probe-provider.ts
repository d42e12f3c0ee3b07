import { type Finding, findingsOn } from '../../floor/finding.ts';
import { createProvider } from './provider.ts';
import type { ProviderSettings } from './provider-settings.ts';
import { SignInFailed } from './sign-in-failed.ts';

/** Whether the OpenID provider answers. Only a sign-in shows whether it accepts the client's id and secret. */
export async function probeProvider(
  settings: ProviderSettings,
  deps: { publicUrl: string; fetch: typeof fetch },
): Promise<Finding> {
  const { ok, wrong } = findingsOn('configuration');
  const provider = createProvider(settings, deps);
  try {
    await provider.check();
    return ok('OIDC_ISSUER', `${provider.name} answers; the redirect URI is ${deps.publicUrl}/sign-in/callback`);
  } catch (error) {
    if (!(error instanceof SignInFailed)) throw error;
    return wrong('OIDC_ISSUER', error.message, 'see docs/operate/operators.md, "When something is wrong"');
  }
}
