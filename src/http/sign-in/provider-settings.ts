import type { Role } from '../../floor/roles.ts';

/** The OpenID provider, and how asset-mirror is registered there. */
export interface ProviderSettings {
  issuer: string;
  clientId: string;
  clientSecret: string;
  scopes: string;
  /** The claim with the groups or roles of an account; dots lead into objects, as in `realm_access.roles`. */
  roleClaim: string;
  /** The values of the claim that give a role. */
  grants: { role: Role; value: string }[];
}
