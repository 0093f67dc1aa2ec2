// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// hookPatience is how often the agent tries to complete a lifecycle hook.
type hookPatience struct {
	// interval is the time between two tries.
	interval time.Duration
	// calls limits the tries in which Auto Scaling did not wait for the machine.
	calls int
}

// hookTry is a try to complete a lifecycle hook.
type hookTry struct {
	// target is the target lifecycle state of the machine.
	target   string
	now      time.Time
	patience hookPatience
}

// hookProgress is what the agent remembers of a lifecycle hook. Auto Scaling can wait for the same machine more than once, each
// time for another target lifecycle state: a machine of a warm pool completes the launch hook before Auto Scaling stops it and
// before it goes into service; a machine that returns to its pool completes the termination hook, and again if the pool is
// deleted before the machine was stopped. Metadata names a target state possibly before Auto Scaling waits, so one answer that
// nothing waits is not enough.
type hookProgress struct {
	target    string    // target lifecycle state; the fields below are about it
	calledAt  time.Time // of the last try
	calls     int       // tries that Auto Scaling answered
	completed bool      // Auto Scaling was waiting, and was told to continue
}

// isOver reports whether the agent has nothing to do any more for a machine with a target state.
func (p *hookProgress) isOver(target string, patience hookPatience) bool {
	return p.target == target && (p.completed || p.calls >= patience.calls)
}

// complete completes a hook if a try is due. It can be called at any time. It reports whether Auto Scaling answered for the
// first time about this target state.
func (p *hookProgress) complete(ctx context.Context, hook lifecycleHook, try hookTry) (first bool, err error) {
	if p.target != try.target {
		*p = hookProgress{target: try.target}
	}

	if p.isOver(try.target, try.patience) || try.now.Sub(p.calledAt) < try.patience.interval {
		return false, nil
	}

	p.calledAt = try.now
	waited, err := hook.completeWaiting(ctx)
	if err != nil {
		return false, err
	}

	p.calls++
	p.completed = waited || hook.sender == nil // nothing ever waits for a machine without a hook

	return p.calls == 1, nil
}
