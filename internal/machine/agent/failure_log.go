// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// reportedFailures is after how many failures in a row a task has a condition: one failure is usual while other machines restart.
const reportedFailures = 3

// failureLog logs and reports the failures of one task that runs until the agent ends. Failures in a row are counted whatever their
// messages are: one with a port, a time or an address in it is never the same twice.
type failureLog struct {
	agent *Agent
	task  string

	// count is how many failures there were in a row.
	count int
	// logged is the last message that was logged.
	logged string
	// reported is the error in the condition; nil if there is no condition.
	reported error
}

// note logs an error unless its message is that of the last one, and sets a condition for a task that fails repeatedly. Nil: the task
// works.
func (l *failureLog) note(err error) {
	if err == nil {
		l.agent.conditions.Clear(report.Task(l.task))
		*l = failureLog{agent: l.agent, task: l.task}

		return
	}

	l.count++
	if err.Error() != l.logged {
		l.logged = err.Error()
		l.agent.Log.Warn("task failed; will retry", slog.String("task", l.task), slog.Any("error", err))
	}

	if l.count < reportedFailures {
		return
	}

	if l.reported == nil || withoutNumbers(err.Error()) != withoutNumbers(l.reported.Error()) {
		l.reported = err
	}

	l.agent.conditions.Set(report.Condition{
		Component: report.Task(l.task),
		State:     report.Warning,
		Cause:     "fails: " + plainerror.Text(l.reported.Error()), // without a count: a change of the text writes the Node
		Next:      "read the agent's journal on the machine: journalctl -u slipway-node",
	}, l.agent.Now())
}

// withoutNumbers returns a message without its digits. Messages that differ by these only are the same to a reader, and each change of a
// condition writes the Node.
func withoutNumbers(message string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}

		return r
	}, message)
}
