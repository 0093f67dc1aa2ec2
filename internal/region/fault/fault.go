// SPDX-License-Identifier: Apache-2.0

// Package fault decides which calls to a region go wrong, and how: what an operator who rehearses, or a test, asks for.
// It knows no service and no connection: the region's front carries out what it decides.
package fault

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Effect is what happens to a call.
type Effect string

// The effects.
const (
	Fail        Effect = "fail"        // it is answered with an error and does nothing
	Throttle    Effect = "throttle"    // it is answered as AWS answers who calls too often, and does nothing
	EffectDelay Effect = "delay"       // it is carried out later, as on a slow line
	DropAnswer  Effect = "drop-answer" // it takes effect, but the connection ends without an answer
	Close       Effect = "close"       // the connection ends, and the call does nothing
	Kill        Effect = "kill"        // the calling process on this computer is killed, and the call does nothing
	KillAfter   Effect = "kill-after"  // the call takes effect, then the calling process is killed before it gets the answer
	Provision   Effect = "provision"   // no call goes wrong: things of a kind take this long to become what they should be
)

// Effects lists all effects in the order in which they are explained.
func Effects() []Effect {
	return []Effect{Fail, Throttle, EffectDelay, DropAnswer, Close, Kill, KillAfter, Provision}
}

// Kinds lists what [Provision] knows: how long it takes to make a thing, and with "-deletion" to remove it.
func Kinds() []string {
	return []string{
		"instance", "instance-deletion", "load-balancer", "load-balancer-deletion", "nat-gateway", "nat-gateway-deletion",
		"volume", "volume-attachment", "volume-deletion", "volume-detachment", "vpc",
	}
}

// Rule says which calls go wrong.
type Rule struct {
	ID int `json:"id,omitempty"` // given by [Engine.Add]
	// Service is a signing name such as ec2 and Action an operation such as CreateVolume or Create*; empty means all.
	Service string `json:"service,omitempty"`
	Action  string `json:"action,omitempty"`
	// Mutating limits the rule to calls that change something, by their name.
	Mutating bool `json:"mutating,omitempty"`
	// Nth is the first call that goes wrong, counted from when the rule was added; 0 means 1.
	Nth int `json:"nth,omitempty"`
	// Count is how many calls go wrong from then on; 0 means 1, -1 all.
	Count  int    `json:"count,omitempty"`
	Effect Effect `json:"effect"`
	// Code and Message of the error, for [Fail] and [Throttle]; empty means the service's usual ones.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay is for [EffectDelay] and [Provision].
	Delay Duration `json:"delay,omitempty"`
	// Kind is one of [Kinds], for [Provision].
	Kind string `json:"kind,omitempty"`
	// Seen counts the calls that the rule was asked about, Hit those that went wrong.
	Seen int `json:"seen"`
	Hit  int `json:"hit"`
}

// Duration is written as in 2m30s.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String is the duration as in 2m30s.
func (d Duration) String() string { return time.Duration(d).String() }

// Check says all that is wrong with a rule.
func (r Rule) Check() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	_, pattern := path.Match(r.Action, "")
	bad(
		!slices.Contains(Effects(), r.Effect),
		"effect %q is not known: use one of %s",
		r.Effect,
		joinNames(Effects()),
	)

	bad(pattern != nil, "action %q is no pattern: use a name such as CreateVolume, or Create*", r.Action)
	bad(r.Nth < 0, "nth %d: calls are counted from 1", r.Nth)
	bad(r.Count < -1, "count %d: use 1 or more, or -1 for all calls", r.Count)
	timed := r.Effect == EffectDelay || r.Effect == Provision
	bad(timed && r.Delay <= 0, "effect %s needs a delay, such as 2s", r.Effect)
	bad(!timed && r.Delay != 0, "a delay goes with the effects delay and provision, not with %s", r.Effect)
	bad(
		r.Code != "" && r.Effect != Fail && r.Effect != Throttle,
		"a code goes with the effects fail and throttle, not with %s",
		r.Effect,
	)
	if r.Effect == Provision {
		bad(
			!slices.Contains(Kinds(), r.Kind),
			"kind %q is not known: use one of %s",
			r.Kind,
			joinNames(Kinds()),
		)
		bad(
			r.Service+r.Action != "" || r.Nth+r.Count != 0 || r.Mutating,
			"effect provision is about a kind, not about calls: leave out service, action, nth, count and mutating",
		)
	} else {
		bad(r.Kind != "", "a kind goes with the effect provision, not with %s", r.Effect)
	}

	return errors.Join(errs...)
}

func joinNames[T ~string](all []T) string {
	out := make([]string, 0, len(all))
	for _, v := range all {
		out = append(out, string(v))
	}

	return strings.Join(out, ", ")
}

// Call is one call on its way.
type Call struct {
	Service, Action string
	Mutating        bool
}

func (r Rule) matchesCall(c Call) bool {
	if r.Effect == Provision || r.Mutating && !c.Mutating || r.Service != "" && r.Service != c.Service {
		return false
	}

	ok, err := path.Match(r.Action, c.Action)
	return r.Action == "" || err == nil && ok
}

// isDue says whether the call just seen goes wrong.
func (r Rule) isDue() bool {
	n := r.Seen
	first := max(r.Nth, 1)
	count := r.Count
	if count == 0 {
		count = 1
	}

	return n >= first && (count < 0 || n < first+count)
}

// Engine holds the rules. The zero Engine is ready, and may be used by several goroutines.
type Engine struct {
	mu         sync.Mutex
	lastRuleID int
	rules      []Rule
}

// Add takes a rule over and returns it with its id.
func (e *Engine) Add(r Rule) (Rule, error) {
	if err := r.Check(); err != nil {
		return r, err
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastRuleID++
	r.ID = e.lastRuleID
	r.Seen = 0
	r.Hit = 0
	e.rules = append(e.rules, r)

	return r, nil
}

// ListRules returns the rules, oldest first, with their counters.
func (e *Engine) ListRules() []Rule {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Rule{}, e.rules...)
}

// Clear forgets all rules, and returns how many there were.
func (e *Engine) Clear() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.rules)
	e.rules = nil

	return n
}

// RecordCall counts a call and returns the rules by which it goes wrong, oldest first: a delay goes with other effects. A nil
// Engine has none.
func (e *Engine) RecordCall(c Call) []Rule {
	if e == nil {
		return nil
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Rule

	for i := range e.rules {
		r := &e.rules[i]
		if !r.matchesCall(c) {
			continue
		}

		r.Seen++
		if r.isDue() {
			r.Hit++
			out = append(out, *r)
		}
	}

	return out
}

// Provisioning is how long things of kind take by the newest rule about them; usual where there is none.
func (e *Engine) Provisioning(kind string, usual time.Duration) time.Duration {
	if e == nil {
		return usual
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	for i := len(e.rules) - 1; i >= 0; i-- {
		if r := &e.rules[i]; r.Effect == Provision && r.Kind == kind {
			r.Seen++
			r.Hit++
			return time.Duration(r.Delay)
		}
	}

	return usual
}

// Sleep waits for d or the end of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}

	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for an injected delay: %w", ctx.Err())
	case <-t.C:
		return nil
	}
}
