import { hasRole, type Operator, type Role, roles } from '../../floor/roles.ts';
import { Refused } from '../refused.ts';

/** The least role for each operation of the API. `media`: files of assets, for viewers only with VIEWER_MEDIA. */
export const leastRoles = {
  getMe: 'viewer',
  getStatus: 'viewer',
  getScrub: 'viewer',
  getSettings: 'viewer',
  listConnections: 'viewer',
  getConnection: 'viewer',
  listProjects: 'viewer',
  listAssets: 'viewer',
  countAssets: 'viewer',
  getAsset: 'viewer',
  listVersions: 'viewer',
  listUpcoming: 'viewer',
  listSyncs: 'viewer',
  getSync: 'viewer',
  listEvents: 'viewer',
  getHistory: 'viewer',
  listChanges: 'viewer',
  listVerifications: 'viewer',
  getVerification: 'viewer',
  listDrills: 'viewer',
  getAssurance: 'viewer',
  getAssuranceReport: 'viewer',
  getDrill: 'viewer',
  listRemovals: 'viewer',
  listHolds: 'viewer',
  listErasures: 'viewer',
  getErasure: 'viewer',
  getErasureCertificate: 'viewer',
  previewErasure: 'viewer',
  listWebhooks: 'viewer',
  listDeliveries: 'viewer',
  listSessions: 'viewer',
  endSession: 'viewer',

  getMedia: 'media',
  getThumbnail: 'media',
  getCaptions: 'media',
  getRecord: 'media',
  getAssetZip: 'media',
  getAssetZipOf: 'media',

  plan: 'operator',
  createConnectLink: 'operator',
  changeConnection: 'operator',
  changeSettings: 'operator',
  resyncConnection: 'operator',
  pauseConnection: 'operator',
  resumeConnection: 'operator',
  retryAsset: 'operator',
  retryFailedOfConnection: 'operator',
  verify: 'operator',
  startDrill: 'operator',
  hold: 'operator',
  redeliver: 'operator',
  testWebhook: 'operator',
  testWebhookOf: 'operator',

  acceptHeldChanges: 'admin',
  disconnectConnection: 'admin',
  release: 'admin',
  erase: 'admin',
  addWebhook: 'admin',
  changeWebhook: 'admin',
  removeWebhook: 'admin',
  rotateKeys: 'admin',
  listTokens: 'admin',
  createToken: 'admin',
  revokeToken: 'admin',
  listAudit: 'admin',
} as const satisfies Record<string, Role | 'media'>;
export type OperationId = keyof typeof leastRoles;

const isKnown = (operation: string | undefined): operation is OperationId =>
  operation !== undefined && Object.hasOwn(leastRoles, operation);

export interface PermissionOptions {
  /** Whether viewers may see files of assets. */
  viewerMedia: boolean;
  /** The values of the claim at the provider that give each role; empty without a provider. */
  grants: { role: Role; value: string }[];
}

export type Permissions = ReturnType<typeof createPermissions>;

/** Decides which operator may do what. */
export function createPermissions({ viewerMedia, grants }: PermissionOptions) {
  const least = (operation: OperationId): Role => {
    const role = leastRoles[operation];
    return role === 'media' ? (viewerMedia ? 'viewer' : 'operator') : role;
  };
  const valuesOf = (role: Role) => grants.filter((grant) => hasRole(grant, role)).map(({ value }) => value);

  return {
    least,
    may: (operator: Pick<Operator, 'role'>, operation: OperationId) => hasRole(operator, least(operation)),

    /** The values of the provider's claim that give each role. */
    grants: () => Object.fromEntries(roles.map((role) => [role, valuesOf(role)])) as Record<Role, string[]>,

    /**
     * @param operation an id without a row in the table is refused
     * @throws Refused 403 if the role of the operator is too low
     */
    check({ name, role: has }: Operator, operation: string | undefined): void {
      const needed = isKnown(operation) ? least(operation) : 'admin';
      if (isKnown(operation) && hasRole({ role: has }, needed)) return;
      const values = valuesOf(needed);
      const whose = values.length > 0 ? ` (${values.join(', ')})` : '';
      throw new Refused(
        403,
        'role_too_low',
        `This needs the role ${needed}; ${name} has the role ${has}. Ask someone with that role${whose}.`,
      );
    },
  };
}
