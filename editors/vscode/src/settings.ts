/** The extension's settings, each read where it is needed: they change while the editor runs. */

import * as os from 'node:os';
import * as path from 'node:path';
import * as vscode from 'vscode';

import type { Command } from './find';

export const SECTION = 'gradlint';

export function enabled(): boolean {
    return settings().get<boolean>('enable', true);
}

/** The command of `gradlint.path`, with its variables filled in; nothing where the setting is empty. */
export function chosen(): Command | undefined {
    const value = settings().get<string | string[]>('path', '');
    const [file, ...args] = (typeof value === 'string' ? [value] : value).map(filled);
    if (file === undefined || file === '') {
        return undefined;
    }
    // A bare name is looked up on the PATH, as in a shell.
    return { file: /[\\/]/.test(file) ? path.resolve(folder(), file) : file, args };
}

/** The settings that the server reads. */
export function told(): Record<string, unknown> {
    const names = ['hover.tensors', 'codeLens', 'confirm.command'];
    return Object.fromEntries(names.map((name) => [name, settings().get<unknown>(name)]));
}

export function traced(): boolean {
    return settings().get<string>('trace.server', 'off') !== 'off';
}

function settings(): vscode.WorkspaceConfiguration {
    return vscode.workspace.getConfiguration(SECTION);
}

function filled(text: string): string {
    return text
        .trim()
        .replace(/^~(?=$|[\\/])/, os.homedir())
        .replaceAll('${workspaceFolder}', folder());
}

/** The first workspace folder.  Of a workspace that is not trusted nothing is started, so there it is the home folder. */
function folder(): string {
    const first = vscode.workspace.isTrusted ? vscode.workspace.workspaceFolders?.[0] : undefined;
    return first?.uri.fsPath ?? os.homedir();
}
