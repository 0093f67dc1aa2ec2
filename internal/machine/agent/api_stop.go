// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

const (
	// apiStopFile says that the API server is stopped on purpose. It is on the root disk, so that an agent that starts again, or follows
	// another document, does not start the API server, and does not forget to.
	apiStopFile = "/var/lib/slipway/api-stop.json"
	// apiStopInterval is how often the agent looks whether the time of a stop is over.
	apiStopInterval = 5 * time.Second
)

// apiStop is a stop of the API server. The zero value is none.
type apiStop struct {
	// Until is when the machine starts the API server again.
	Until time.Time `json:"until"`
	// By is who asked for it, for people.
	By string `json:"by"`
}

// lasts reports whether the API server must not run.
func (s apiStop) lasts(now time.Time) bool { return now.Before(s.Until) }

// readAPIStop returns the stop of the API server that was begun last, also one whose time is over. One that cannot be read is over: the
// only API server of a cluster must not stay stopped because of it.
func readAPIStop(a *Agent) apiStop {
	if !a.Root.Exists(apiStopFile) {
		return apiStop{}
	}

	var out apiStop
	body, err := a.Root.Read(apiStopFile)
	if err == nil {
		err = json.Unmarshal(body, &out)
	}

	if err != nil {
		a.Log.Warn("cannot read why the API server is stopped; starting it", slog.String("file", apiStopFile), slog.Any("error", err))
		return apiStop{Until: a.Now()}
	}

	return out
}

// write stores the stop.
func (s apiStop) write(a *Agent) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode %s: %w", apiStopFile, err)
	}

	_, err = a.Root.Write(File{Path: apiStopFile, Body: body, Mode: 0o600, Durable: true})

	return err
}

// beginAPIStop notes that the API server is not to run for a while.
func beginAPIStop(a *Agent, by string) error {
	stop := apiStop{Until: a.Now().Add(backup.MaxAPIStop).UTC(), By: by}
	a.Log.Warn("the API server is stopped, so that a backup of etcd has every write", slog.String("by", by), slog.Time("until", stop.Until))
	a.apiStops.Lock()
	defer a.apiStops.Unlock()

	return stop.write(a)
}

// startAPI starts the API server, whether or not it was stopped. If that fails, endAPIStop repeats it.
func startAPI(a *Agent) error {
	a.apiStops.Lock()
	defer a.apiStops.Unlock()

	return startStoppedAPI(a)
}

// startStoppedAPI is startAPI while no stop can begin.
func startStoppedAPI(a *Agent) error {
	if err := (apiStop{Until: a.Now().UTC()}).write(a); err != nil {
		return err
	}

	if err := writeStaticPodFiles(a); err != nil {
		return fmt.Errorf("start the API server again: %w", err)
	}

	return a.Root.Remove(apiStopFile)
}

// endAPIStop starts the API server if it was stopped for too long: whoever has asked for it has gone away.
func endAPIStop(a *Agent) error {
	a.apiStops.Lock()
	defer a.apiStops.Unlock()
	stop := readAPIStop(a)
	if stop.Until.IsZero() || stop.lasts(a.Now()) {
		return nil
	}

	a.Log.Warn("the API server starts again: the machine was not replaced in time", slog.String("by", stop.By))

	return startStoppedAPI(a)
}
