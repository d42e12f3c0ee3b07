import { assuranceAnswer, assuranceQuery } from '../../operations/assurance/assurance.ts';
import { reportAnswer, reportQuery } from '../../operations/assurance/assurance-report.ts';
import { drillAccepted, drillAnswer, drillList, drillQuery, drillRequest } from '../../operations/assurance/drills.ts';
import {
  linesQuery,
  verificationAnswer,
  verificationList,
  verificationQuery,
  verifyAnswer,
  verifyRequest,
} from '../../operations/assurance/verifications.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import { refused } from '../openapi.ts';
import { type Api, ofOne, routesOf } from './route.ts';

const route = routesOf('verification');

export function verificationRoutes(app: Api, operations: Operations): void {
  app.post(
    '/verify',
    route('verify', 'Start a verification of library, database and bucket', {
      body: verifyRequest.nullish(),
      response: { 202: verifyAnswer, ...refused(404) },
    }),
    async (request, reply) => reply.code(202).send(await operations.verify(request.body ?? {})),
  );
  app.get(
    '/verify',
    route(
      'listVerifications',
      'List verifications, newest first: those that wait or run, and the last ones that ended',
      {
        querystring: verificationQuery,
        response: { 200: verificationList, ...refused(404) },
      },
    ),
    async (request) => operations.verifications(request.query),
  );
  app.get(
    '/verify/:id',
    route('getVerification', 'Get the progress and the findings of a verification', {
      params: idParams,
      querystring: linesQuery,
      response: { 200: verificationAnswer, ...refused(404) },
    }),
    async (request) => operations.verification(request.params.id, request.query),
  );
  app.post(
    '/drills',
    route('startDrill', 'Start a restore drill', {
      body: drillRequest.nullish(),
      response: { 202: drillAccepted },
    }),
    async (request, reply) => reply.code(202).send(await operations.startDrill(request.body ?? {})),
  );
  app.get(
    '/drills',
    route('listDrills', 'List restore drills, the newest first', {
      querystring: drillQuery,
      response: { 200: drillList },
    }),
    async (request) => operations.drills(request.query),
  );
  app.get(
    '/drills/:id',
    route('getDrill', 'Get the report of a restore drill', ofOne(drillAnswer, 404)),
    async (request) => operations.drill(request.params.id),
  );
  app.get(
    '/assurance',
    route('getAssurance', 'Get whether the copy is complete, fresh, verified, proven and recoverable', {
      querystring: assuranceQuery,
      response: { 200: assuranceAnswer, ...refused(404) },
    }),
    async (request) => operations.assurance(request.query),
  );
  app.get(
    '/assurance/report',
    route('getAssuranceReport', 'Get the signed report of a month', {
      querystring: reportQuery,
      response: { 200: reportAnswer, ...refused(404) },
    }),
    async (request) => operations.assuranceReport(request.query),
  );
}
