/** gradlint's findings, as the editor shows them. */

import * as vscode from 'vscode';

/** The diagnostics' `source`. */
const SOURCE = 'gradlint';

export function findings(uri: vscode.Uri): vscode.Diagnostic[] {
    return vscode.languages.getDiagnostics(uri).filter((diagnostic) => diagnostic.source === SOURCE);
}

/** How many findings the file that is being looked at has, a notebook over all its cells; nothing where it is no Python. */
export function findingsInSight(): number | undefined {
    const document = vscode.window.activeTextEditor?.document;
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    if (notebook !== undefined && (document === undefined || document.uri.scheme === 'vscode-notebook-cell')) {
        return notebook
            .getCells()
            .map((cell) => findings(cell.document.uri).length)
            .reduce((sum, count) => sum + count, 0);
    }
    return document?.languageId === 'python' ? findings(document.uri).length : undefined;
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
