/** What the command palette offers.  The server's own commands have other names: the language client registers those. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import * as vscode from 'vscode';

import type { Gradlint } from './find';
import { findingsAt, rule } from './findings';
import type { Server } from './server';

/** One line of `gradlint rules --output-format json`. */
interface Rule {
    readonly code: string;
    readonly name: string;
    readonly severity: string;
    readonly title: string;
}

export function register(server: Server): vscode.Disposable {
    const commands: Record<string, () => unknown> = {
        restart: () => server.restart(),
        fixFile: () => fixFile(server),
        explainRule: () => explainRule(server),
        confirmFinding: () => confirmFinding(server),
        showOutput: () => {
            server.output.show();
        },
    };
    return vscode.Disposable.from(
        ...Object.entries(commands).map(([name, run]) => vscode.commands.registerCommand(`gradlint.${name}`, run)),
    );
}

async function fixFile(server: Server): Promise<void> {
    const document = vscode.window.activeTextEditor?.document;
    if (document === undefined) {
        return;
    }
    const edited: vscode.TextDocument[] = [];
    const watching = vscode.workspace.onDidChangeTextDocument((event) => {
        // The cells of a notebook have its path.
        if (event.document.uri.path === document.uri.path) {
            edited.push(event.document);
        }
    });
    try {
        await server.execute('gradlint.fixAll', server.protocolUri(document.uri));
    } finally {
        watching.dispose();
    }
    if (edited.length === 0) {
        void vscode.window.showInformationMessage(
            'gradlint: nothing here can be fixed safely. What else can be done is among the quick fixes of each finding.',
        );
    }
}

async function explainRule(server: Server): Promise<void> {
    if (server.state.kind !== 'ready') {
        return;
    }
    const editor = vscode.window.activeTextEditor;
    const here = new Set(editor === undefined ? [] : findingsAt(editor).map(rule));
    const entries = (await rules(server.state.gradlint)).map(({ code, name, severity, title }) => ({
        label: name,
        description: `${code}, ${severity}`,
        detail: title,
    }));
    const chosen = await vscode.window.showQuickPick(
        entries.sort((a, b) => Number(here.has(b.label)) - Number(here.has(a.label))),
        { placeHolder: 'Explain which rule?', matchOnDescription: true, matchOnDetail: true },
    );
    if (chosen !== undefined) {
        await server.execute('gradlint.explain', chosen.label);
    }
}

async function rules(gradlint: Gradlint): Promise<Rule[]> {
    const args = [...gradlint.args, 'rules', '--output-format', 'json'];
    const { stdout } = await promisify(execFile)(gradlint.file, args, { windowsHide: true });
    return JSON.parse(stdout) as Rule[];
}

async function confirmFinding(server: Server): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined) {
        return;
    }
    const found = findingsAt(editor);
    if (found.length === 0) {
        void vscode.window.showInformationMessage('gradlint: put the cursor on a finding to confirm it.');
        return;
    }
    const finding = found.length === 1 ? found[0] : await choose(found);
    if (finding !== undefined) {
        const { data } = server.protocolDiagnostic(finding) as { data?: unknown };
        await server.execute('gradlint.confirm', server.protocolUri(editor.document.uri), data);
    }
}

async function choose(found: readonly vscode.Diagnostic[]): Promise<vscode.Diagnostic | undefined> {
    const entries = found.map((finding) => ({
        label: rule(finding),
        detail: finding.message.split('\n', 1)[0] ?? '',
        finding,
    }));
    return (await vscode.window.showQuickPick(entries, { placeHolder: 'Confirm which finding?' }))?.finding;
}
