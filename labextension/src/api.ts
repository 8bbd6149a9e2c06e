/** Requests to the server's REST API, with the cookie or token that JupyterLab uses. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

/** What the server answered instead of what was asked for; the message says what to do. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string
  ) {
    super(message);
  }
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** The address of something of ours, below whatever prefix the server has. */
export function address(settings: ServerConnection.ISettings, path: string): string {
  return URLExt.join(settings.baseUrl, 'workshop-gpu/api', path);
}

/** Ask the server. Throws Refusal, or ServerConnection.NetworkError where nobody answers. */
export async function ask<T>(
  settings: ServerConnection.ISettings,
  method: Method,
  path: string,
  body?: unknown
): Promise<T> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
  }
  const response = await ServerConnection.makeRequest(address(settings, path), init, settings);
  if (!response.ok) {
    throw await refusalOf(response);
  }
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** What an answer that is none says. */
export async function refusalOf(response: Response): Promise<Refusal> {
  const { status, statusText } = response;
  try {
    const { error } = await response.json();
    return new Refusal(status, String(error.kind), String(error.message));
  } catch {
    return new Refusal(status, 'unknown', `The server answered ${status} ${statusText}.`);
  }
}
