// SPDX-License-Identifier: Apache-2.0

// Package fault implements fault injection for a region: rules of tests and operators that make API
// calls fail, or that change how long resources take to provision. The package decides which calls
// are affected; package server applies the effects. It knows no service and no connection.
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

// Effect is the effect of a rule on a call.
type Effect string

// Effects of a rule.
const (
	// EffectFail returns an error without executing the call.
	EffectFail Effect = "fail"
	// EffectThrottle returns the service's rate limit error without executing the call.
	EffectThrottle Effect = "throttle"
	// EffectDelay delays the call.
	EffectDelay Effect = "delay"
	// EffectDropAnswer executes the call and closes the connection without a response.
	EffectDropAnswer Effect = "drop-answer"
	// EffectClose closes the connection without executing the call.
	EffectClose Effect = "close"
	// EffectKill kills the calling process on this computer without executing the call.
	EffectKill Effect = "kill"
	// EffectKillAfter executes the call and kills the calling process before it receives the response.
	EffectKillAfter Effect = "kill-after"
	// EffectProvision affects no calls; it sets how long a kind of resource takes to reach its next
	// state.
	EffectProvision Effect = "provision"
	// EffectNoCapacity affects no calls; EC2 has no capacity for instances of one type, or for spot instances.
	EffectNoCapacity Effect = "no-capacity"
	// EffectSpotInterruption affects no calls; it gives a spot instance the interruption notice, and terminates
	// it when the notice ends.
	EffectSpotInterruption Effect = "spot-interruption"
	// EffectRebalance affects no calls; it gives a spot instance the rebalance recommendation.
	EffectRebalance Effect = "rebalance-recommendation"
)

// Effects returns all effects in the order of their documentation.
func Effects() []Effect {
	return []Effect{
		EffectFail,
		EffectThrottle,
		EffectDelay,
		EffectDropAnswer,
		EffectClose,
		EffectKill,
		EffectKillAfter,
		EffectProvision,
		EffectNoCapacity,
		EffectSpotInterruption,
		EffectRebalance,
	}
}

// ProvisionKinds returns the kinds for Provision: a resource's creation, or with the suffix -deletion its
// deletion.
func ProvisionKinds() []string {
	return []string{
		"instance",
		"instance-deletion",
		"load-balancer",
		"load-balancer-deletion",
		"nat-gateway",
		"nat-gateway-deletion",
		"volume",
		"volume-attachment",
		"volume-deletion",
		"volume-detachment",
		"vpc",
	}
}

// Rule selects calls and the effect on them.
type Rule struct {
	// ID is assigned by [Engine.AddRule].
	ID int `json:"id,omitempty"`
	// Service is a signing name such as ec2; empty means all services.
	Service string `json:"service,omitempty"`
	// Action is an operation such as CreateVolume, or a pattern such as Create*; empty means all
	// operations.
	Action string `json:"action,omitempty"`
	// Mutating limits the rule to operations that change something, see server.Mutates.
	Mutating bool `json:"mutating,omitempty"`
	// Nth is the first affected call, counted since the rule was added. 0 means 1.
	Nth int `json:"nth,omitempty"`
	// Count is the number of affected calls from Nth on. 0 means 1, -1 means all.
	Count int `json:"count,omitempty"`
	// Effect on the affected calls.
	Effect Effect `json:"effect"`
	// Code of the error for [EffectFail] and [EffectThrottle]; empty means the service's usual code.
	Code string `json:"code,omitempty"`
	// Message of the error for [EffectFail] and [EffectThrottle]; empty means the usual message.
	Message string `json:"message,omitempty"`
	// Instance is the instance id for [EffectSpotInterruption] and [EffectRebalance].
	Instance string `json:"instance,omitempty"`
	// Delay for [EffectDelay] and [EffectProvision]. For [EffectSpotInterruption] it is the time of the notice;
	// 0 means the two minutes of AWS.
	Delay Duration `json:"delay,omitempty"`
	// Kind for [EffectProvision], one of [ProvisionKinds], and for [EffectNoCapacity] an instance type or spot.
	Kind string `json:"kind,omitempty"`
	// Seen is the number of calls that matched the rule.
	Seen int `json:"seen"`
	// Hit is the number of calls that were affected.
	Hit int `json:"hit"`
}

// Duration is a time.Duration that is encoded as text, such as 2m30s.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String returns the duration as text, such as 2m30s.
func (d Duration) String() string { return time.Duration(d).String() }

// Validate returns all errors of a rule, joined.
func (r Rule) Validate() error { //nolint:cyclop // a list of independent checks
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	_, pattern := path.Match(r.Action, "")
	bad(
		!slices.Contains(Effects(), r.Effect),
		"effect %q is not supported: use one of %s",
		r.Effect,
		joinNames(Effects()),
	)

	bad(
		pattern != nil,
		"action %q is not a valid pattern: use a name such as CreateVolume, or Create*",
		r.Action,
	)
	bad(r.Nth < 0, "nth %d: use 1 or more", r.Nth)
	bad(r.Count < -1, "count %d: use 1 or more, or -1 for all calls", r.Count)
	timed := r.Effect == EffectDelay || r.Effect == EffectProvision
	bad(timed && r.Delay <= 0, "effect %s needs a delay, such as 2s", r.Effect)
	bad(
		!timed && r.Effect != EffectSpotInterruption && r.Delay != 0,
		"delay is valid only with effects delay, provision and spot-interruption, not %s",
		r.Effect,
	)
	bad(
		r.Code != "" && r.Effect != EffectFail && r.Effect != EffectThrottle,
		"code is valid only with effects fail and throttle, not %s",
		r.Effect,
	)
	bad(
		r.Effect.affectsNoCalls() && (r.Service+r.Action != "" || r.Nth+r.Count != 0 || r.Mutating),
		"effect %s affects no calls: remove service, action, nth, count, and mutating",
		r.Effect,
	)
	bad(
		r.Effect == EffectProvision && !slices.Contains(ProvisionKinds(), r.Kind),
		"kind %q is not supported: use one of %s",
		r.Kind,
		joinNames(ProvisionKinds()),
	)
	bad(r.Effect == EffectNoCapacity && r.Kind == "", "effect %s needs an instance type as kind", r.Effect)
	bad(
		r.Effect != EffectProvision && r.Effect != EffectNoCapacity && r.Kind != "",
		"kind is valid only with effects provision and no-capacity, not %s",
		r.Effect,
	)

	return errors.Join(append(errs, r.checkInstance())...)
}

// checkInstance checks that a rule names an instance if its effect is a notice, and else none.
func (r Rule) checkInstance() error {
	switch {
	case r.Effect.isNotice() && r.Instance == "":
		return fmt.Errorf("effect %s needs an instance", r.Effect)
	case !r.Effect.isNotice() && r.Instance != "":
		return fmt.Errorf(
			"instance is valid only with effects spot-interruption and rebalance-recommendation, not %s",
			r.Effect,
		)
	}

	return nil
}

// isNotice reports whether the effect is a notice to one instance.
func (e Effect) isNotice() bool { return e == EffectSpotInterruption || e == EffectRebalance }

// affectsNoCalls reports whether the effect changes something other than API calls.
func (e Effect) affectsNoCalls() bool {
	return e == EffectProvision || e == EffectNoCapacity || e.isNotice()
}

func joinNames[T ~string](all []T) string {
	out := make([]string, 0, len(all))
	for _, v := range all {
		out = append(out, string(v))
	}

	return strings.Join(out, ", ")
}

// Call is one API call.
type Call struct {
	// Service is the signing name.
	Service string
	// Action is the operation.
	Action string
	// Mutating is set for operations that change something.
	Mutating bool
}

func (r Rule) matchesCall(c Call) bool {
	if r.Effect.affectsNoCalls() || r.Mutating && !c.Mutating || r.Service != "" && r.Service != c.Service {
		return false
	}

	ok, err := path.Match(r.Action, c.Action)
	return r.Action == "" || err == nil && ok
}

// isDue reports whether the call that was just counted is affected.
func (r Rule) isDue() bool {
	n := r.Seen
	first := max(r.Nth, 1)
	count := r.Count
	if count == 0 {
		count = 1
	}

	return n >= first && (count < 0 || n < first+count)
}

// Engine stores the rules and counts calls. The zero Engine is ready to use. It is safe for
// concurrent use.
type Engine struct {
	mu         sync.Mutex
	lastRuleID int
	rules      []Rule
	giveNotice func(Rule) error
}

// OnNotice sets what gives an instance the notice of a rule when it is added.
func (e *Engine) OnNotice(give func(Rule) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.giveNotice = give
}

// applyNotice gives an instance the notice of a rule that has one.
func (e *Engine) applyNotice(r Rule) error {
	e.mu.Lock()
	give := e.giveNotice
	e.mu.Unlock()
	switch {
	case !r.Effect.isNotice():
		return nil
	case give == nil:
		return fmt.Errorf("effect %s needs a region that runs instances", r.Effect)
	}

	return give(r)
}

// AddRule validates and adds a rule and returns it with its id.
func (e *Engine) AddRule(r Rule) (Rule, error) {
	if err := r.Validate(); err != nil {
		return r, err
	}

	if err := e.applyNotice(r); err != nil {
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

// ClearRules removes all rules and returns how many there were.
func (e *Engine) ClearRules() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.rules)
	e.rules = nil

	return n
}

// RecordCall counts a call and returns the rules that affect it, oldest first. A delay can be
// combined with another effect. A nil Engine has no rules.
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

// ProvisioningDelay returns how long resources of a kind take according to the newest rule for that
// kind, or usual without a rule.
func (e *Engine) ProvisioningDelay(kind string, usual time.Duration) time.Duration {
	if e == nil {
		return usual
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	for i := len(e.rules) - 1; i >= 0; i-- {
		if r := &e.rules[i]; r.Effect == EffectProvision && r.Kind == kind {
			r.Seen++
			r.Hit++
			return time.Duration(r.Delay)
		}
	}

	return usual
}

// LacksCapacity reports whether a rule says that EC2 has no capacity for instances of a type, or of the market "spot".
func (e *Engine) LacksCapacity(instanceType string) bool {
	if e == nil {
		return false
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.rules {
		if r := &e.rules[i]; r.Effect == EffectNoCapacity && r.Kind == instanceType {
			r.Seen++
			r.Hit++
			return true
		}
	}

	return false
}

// Sleep sleeps until d has passed or ctx ends, and returns an error in the latter case.
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
