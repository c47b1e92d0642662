import * as vscode from 'vscode';

import { register } from './commands';
import { watchInterpreter } from './python';
import { Server } from './server';
import { SECTION } from './settings';
import { Status } from './status';

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
    const running = new Server(context);
    server = running;
    const reconsider = (): void => {
        void running.reconsider();
    };
    context.subscriptions.push(
        running,
        new Status(running),
        register(running),
        running.onDidChange((state) => {
            void vscode.commands.executeCommand('setContext', 'gradlint.ready', state.kind === 'ready');
        }),
        vscode.workspace.onDidChangeConfiguration((event) => {
            if (event.affectsConfiguration(`${SECTION}.enable`) || event.affectsConfiguration(`${SECTION}.path`)) {
                void running.restart();
            } else if (event.affectsConfiguration(SECTION)) {
                void running.configure();
            }
        }),
        vscode.workspace.onDidGrantWorkspaceTrust(reconsider),
    );
    void running.restart();
    void watchInterpreter(reconsider).then((watching) => {
        if (watching !== undefined) {
            context.subscriptions.push(watching);
        }
    });
}

export async function deactivate(): Promise<void> {
    await server?.stop();
}
