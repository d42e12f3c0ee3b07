/** The roles of operators, from least to most. Each may do what those before it may. */
export const roles = ['viewer', 'operator', 'admin'] as const;
export type Role = (typeof roles)[number];

/** How an operator was authenticated: ADMIN_TOKEN, an API token, or an account of the OpenID provider, in a browser or a terminal. */
export const signInMethods = ['admin_token', 'api_token', 'oidc', 'device'] as const;
export type SignInMethod = (typeof signInMethods)[number];

/** The sender of a request. `subject` identifies the person or token for good; the name may change. */
export interface Operator {
  subject: string;
  name: string;
  role: Role;
  method: SignInMethod;
}

export const hasRole = (operator: Pick<Operator, 'role'>, least: Role): boolean =>
  roles.indexOf(operator.role) >= roles.indexOf(least);

/** The highest of these roles. */
export const highestRole = (found: readonly Role[]): Role | undefined => roles.findLast((role) => found.includes(role));
