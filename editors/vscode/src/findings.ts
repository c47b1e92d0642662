/** gradlint's findings, as the editor shows them. */

import * as vscode from 'vscode';

/** The diagnostics' `source`. */
const SOURCE = 'gradlint';

export function findings(uri: vscode.Uri): vscode.Diagnostic[] {
    return vscode.languages.getDiagnostics(uri).filter((diagnostic) => diagnostic.source === SOURCE);
}

/**
 * How many findings the file of the active tab has, a notebook over all its cells; nothing where it is no Python.
 *
 * Not of the active text editor: the output is one too.
 */
export function findingsInSight(): number | undefined {
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    if (input instanceof vscode.TabInputNotebook) {
        const notebook = vscode.workspace.notebookDocuments.find((each) => same(each.uri, input.uri));
        const counts = notebook?.getCells().map((cell) => findings(cell.document.uri).length);
        return counts?.reduce((sum, count) => sum + count, 0);
    }
    const uri =
        input instanceof vscode.TabInputText
            ? input.uri
            : input instanceof vscode.TabInputTextDiff
              ? input.modified
              : undefined;
    const document = vscode.workspace.textDocuments.find((each) => uri !== undefined && same(each.uri, uri));
    return document?.languageId === 'python' ? findings(document.uri).length : undefined;
}

function same(one: vscode.Uri, other: vscode.Uri): boolean {
    return one.toString() === other.toString();
}

/** The name of a finding's rule. */
export function rule(diagnostic: vscode.Diagnostic): string {
    const code = diagnostic.code;
    return String(typeof code === 'object' ? code.value : (code ?? ''));
}

/** The findings on the line of the cursor, those at the cursor first. */
export function findingsAt(editor: vscode.TextEditor): vscode.Diagnostic[] {
    const { active } = editor.selection;
    return findings(editor.document.uri)
        .filter(({ range }) => range.start.line <= active.line && active.line <= range.end.line)
        .sort((a, b) => Number(b.range.contains(active)) - Number(a.range.contains(active)));
}
