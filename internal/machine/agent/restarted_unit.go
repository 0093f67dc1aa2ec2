// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxExits is how often a program may exit after its restart until it counts as broken. One exit can have another cause
// than its new settings.
const maxExits = 3

// crashLoopError is why a component will not work, however long one waits.
type crashLoopError struct{ exits int }

// Error returns how often it exited.
func (e crashLoopError) Error() string {
	return fmt.Sprintf("does not work: it exited %d times", e.exits)
}

func isCrashLoop(err error) bool {
	_, ok := errors.AsType[crashLoopError](err)

	return ok
}

// restartedUnit is a systemd unit that was restarted because of a new node document.
type restartedUnit struct {
	// wasReady is set if the node was Ready before.
	wasReady bool
	// at is when it was restarted, in whole seconds.
	at time.Time
	// exits is systemd's count of automatic restarts right after the restart, and seen the count at the last check.
	exits, seen int
}

// judgeExits returns an error if the unit's process has exited since the last check, and a crashLoopError if it exits
// again and again.
func (u *restartedUnit) judgeExits(now int) error {
	last := u.seen
	u.seen = now

	switch {
	case now-u.exits >= maxExits:
		return crashLoopError{now - u.exits}
	case now != last:
		return errors.New("it has exited")
	default:
		return nil
	}
}

// nodeStatus is the part of a Node that its kubelet reports.
type nodeStatus struct {
	Status struct {
		Conditions []struct {
			Type              string    `json:"type"`
			Status            string    `json:"status"`
			Message           string    `json:"message"`
			LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
		} `json:"conditions"`
	} `json:"status"`
}

// readySince returns why the kubelet has not reported its node as Ready since a time.
func (s nodeStatus) readySince(since time.Time) error {
	isReady := false
	for _, c := range s.Status.Conditions {
		switch {
		case strings.HasSuffix(c.Type, "Pressure") && c.Status == "True":
			return fmt.Errorf("its node has %s: %s", c.Type, c.Message)
		case c.Type != "Ready":
			continue
		case c.LastHeartbeatTime.Before(since):
			return errors.New("it has not reported the state of its node yet")
		case c.Status != "True":
			return fmt.Errorf("its node is not Ready: %s", c.Message)
		}

		isReady = true
	}

	if isReady {
		return nil
	}

	return errors.New("its node has no Ready condition")
}
