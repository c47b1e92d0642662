/** The interpreter that the Python extension has selected, where that extension is installed. */

import * as vscode from 'vscode';

/** What is used of the Python extension's public interface. */
interface PythonExtension {
    readonly environments: {
        getActiveEnvironmentPath(resource?: vscode.Uri): { readonly path: string };
        resolveEnvironment(environment: {
            readonly path: string;
        }): Promise<{ readonly executable: { readonly uri: vscode.Uri | undefined } } | undefined>;
        readonly onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
    };
}

/** Another extension must not keep gradlint waiting. */
const PATIENCE = 10_000;

async function activated(): Promise<PythonExtension | undefined> {
    const extension = vscode.extensions.getExtension<PythonExtension>('ms-python.python');
    return extension === undefined ? undefined : within(extension.activate());
}

/** The path of the selected interpreter; nothing where there is no such extension, or it fails. */
export async function selectedInterpreter(folder: vscode.Uri | undefined): Promise<string | undefined> {
    try {
        const environments = (await activated())?.environments;
        if (environments === undefined) {
            return undefined;
        }
        const environment = await within(environments.resolveEnvironment(environments.getActiveEnvironmentPath(folder)));
        return environment?.executable.uri?.fsPath;
    } catch {
        return undefined;
    }
}

/** Calls `changed` when another interpreter is selected. */
export async function watchInterpreter(changed: () => void): Promise<vscode.Disposable | undefined> {
    try {
        return (await activated())?.environments.onDidChangeActiveEnvironmentPath(changed);
    } catch {
        return undefined;
    }
}

function within<T>(answer: Thenable<T>): Promise<T | undefined> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
        timer = setTimeout(() => {
            resolve(undefined);
        }, PATIENCE);
    });
    return Promise.race([Promise.resolve(answer), late]).finally(() => {
        clearTimeout(timer);
    });
}
