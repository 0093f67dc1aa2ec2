// SPDX-License-Identifier: Apache-2.0

// Package agent makes a machine what its node document says: it downloads, writes, starts and keeps. It knows one
// machine, its own; what a cluster is to have is decided before, in documents.
package agent

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// The states of a stage, as on the console.
const (
	stateRunning = "running"
	stateDone    = "done"
	stateFailed  = "failed"
)

// Reporter writes each stage's progress to the serial console, where the operator reads it without SSH, and to the
// journal. A line that says nothing new is left out.
type Reporter struct {
	// Open opens the console; it is opened for each line, since a console may go away.
	Open func() (io.WriteCloser, error)
	Log  *slog.Logger
	Now  func() time.Time

	mu   sync.Mutex
	last stageReport
}

type stageReport struct {
	Time  string `json:"time"`
	Stage string `json:"stage"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Running says that a stage works, or what it waits for.
func (r *Reporter) Running(stage, waits string) {
	r.writeReport(stageReport{Stage: stage, State: stateRunning, Error: waits})
}

// Done says that a stage is complete.
func (r *Reporter) Done(stage string) { r.writeReport(stageReport{Stage: stage, State: stateDone}) }

// Failed says why a stage fails; it will be tried again.
func (r *Reporter) Failed(stage string, err error) {
	l := stageReport{Stage: stage, State: stateFailed, Error: err.Error()}
	l.Hint = strings.Join(diag.Hints(err), "; ")
	var hash HashError
	if errors.As(err, &hash) && l.Hint == "" {
		l.Hint = "check the asset catalogue and the mirror, then run slipway apply"
	}

	r.writeReport(l)
}

func (r *Reporter) writeReport(l stageReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l == r.last {
		return
	}

	r.last = l
	log := r.Log.Info
	if l.State == stateFailed {
		log = r.Log.Error
	}

	log("stage", slog.String("stage", l.Stage), slog.String("state", l.State), slog.String("error", l.Error))
	l.Time = r.Now().UTC().Format(time.RFC3339)
	body, err := json.Marshal(l)
	if err != nil {
		return
	}

	console, err := r.Open()
	if err != nil {
		r.Log.Warn("console can not be opened", slog.Any("error", err))
		return
	}

	defer console.Close() //nolint:errcheck // nobody to tell
	if _, err := console.Write([]byte("slipway-node: " + string(body) + "\n")); err != nil {
		r.Log.Warn("console can not be written", slog.Any("error", err))
	}
}
