/**
 * The output of `gradlint.trace.server`.
 *
 * The language client writes a trace only while its channel's log level is "trace", which a user would have to set by
 * another command.  This channel takes its level from the setting, so that the setting does what it says.
 */

import * as vscode from 'vscode';

import { SECTION, traced } from './settings';

export class TraceChannel implements vscode.LogOutputChannel {
    readonly name = 'gradlint (trace)';
    private channel: vscode.OutputChannel | undefined;
    private readonly changed = new vscode.EventEmitter<vscode.LogLevel>();
    private readonly watching = vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration(`${SECTION}.trace.server`)) {
            this.changed.fire(this.logLevel);
        }
    });

    readonly onDidChangeLogLevel = this.changed.event;

    get logLevel(): vscode.LogLevel {
        return traced() ? vscode.LogLevel.Trace : vscode.LogLevel.Off;
    }

    trace(message: string): void {
        this.appendLine(message);
    }

    debug(message: string): void {
        this.appendLine(message);
    }

    info(message: string): void {
        this.appendLine(message);
    }

    warn(message: string): void {
        this.appendLine(message);
    }

    error(message: string | Error): void {
        this.appendLine(String(message));
    }

    append(text: string): void {
        this.shown().append(text);
    }

    appendLine(line: string): void {
        this.shown().appendLine(line);
    }

    replace(text: string): void {
        this.shown().replace(text);
    }

    clear(): void {
        this.channel?.clear();
    }

    show(): void {
        this.shown().show(true);
    }

    hide(): void {
        this.channel?.hide();
    }

    dispose(): void {
        this.watching.dispose();
        this.changed.dispose();
        this.channel?.dispose();
    }

    /** Made when first written to: who does not trace sees no empty output. */
    private shown(): vscode.OutputChannel {
        return (this.channel ??= vscode.window.createOutputChannel(this.name));
    }
}
