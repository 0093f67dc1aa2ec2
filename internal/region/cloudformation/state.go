// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// state is all that is remembered; it is saved as JSON.
type state struct {
	Stacks map[string]*stack // by id, which is an ARN
}

// content is what a stack is made of: it changes as a whole.
type content struct {
	Body       string
	Params     map[string]value
	Tags       map[string]string
	Outputs    []output
	Imports    []string // names of other stacks' exports
	Described  string   // the template's description
	Capability []string
}

// stack is a stack, or what is remembered of a deleted one.
type stack struct {
	ID, Name, Status, Reason  string
	Created, Updated, Deleted time.Time
	content
	Resources       map[string]*resource // by logical id
	Events          []event              // oldest first
	ChangeSets      map[string]*changeSet
	Policy          string
	Protected       bool
	DisableRollback bool
	OnFailure       string
	Timeout         int64 // minutes; 0 for none
	Role            string
	Notify          []string
	ChangeSetID     string     // the change set that was executed last
	Op              *operation // under way
	Stuck           *operation // an update whose rollback failed
}

// resource is a resource of a stack.
type resource struct {
	Logical, Type, Physical string
	Status, Reason          string
	Changed                 time.Time
	Properties              tree // evaluated, as they were last applied
	Attributes              tree
	After                   []string // what it depends on
	DeletionPolicy          string
	UpdateReplacePolicy     string
	Description             string
	Signals                 []signal `json:"signals,omitempty"`
	Begun                   bool     `json:"begun,omitempty"`   // its creation was begun, and perhaps done
	Waiting                 bool     `json:"waiting,omitempty"` // for signals
	Roll                    *roll    `json:"roll,omitempty"`
	From                    tree     `json:"from,omitempty"` // its properties before the change under way
}

// signal is a message about a resource's readiness.
type signal struct {
	ID      string
	Success bool
	Data    string
}

type output struct{ Key, Value, Description, Export string }

// event is one line of a stack's history.
type event struct {
	ID, Logical, Physical, Type, Status, Reason string
	At                                          time.Time
	Token                                       string
	Properties                                  string
}

// The kinds of operations.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

// operation is what happens to a stack. Everything in it survives a restart.
type operation struct {
	Kind, Phase string
	Token       string // the client's
	Caller      wire.Caller
	Begun       time.Time
	Retain      []string // resources that a deletion leaves alone
	// Old is the stack before an update; New is what it is to become.
	Old, New      content
	OldResources  map[string]*resource
	Garbage       []*resource // to delete at the end
	Done          map[string]bool
	Touched       map[string]bool
	Cancelled     string // why it is to be rolled back
	DuringPolicy  string // replaces the stack policy for this update
	Skip          []string
	KeepOnFailure bool
}

func (c content) clone() content {
	c.Params, c.Tags = maps.Clone(c.Params), maps.Clone(c.Tags)
	c.Outputs, c.Imports, c.Capability = slices.Clone(c.Outputs), slices.Clone(c.Imports), slices.Clone(c.Capability)
	return c
}

// clone copies a resource; its trees are shared, for nobody changes them in place.
func (r *resource) clone() *resource {
	c := *r
	c.After, c.Signals = slices.Clone(r.After), slices.Clone(r.Signals)
	c.Attributes = maps.Clone(r.Attributes)
	if r.Roll != nil {
		c.Roll = new(*r.Roll)
		c.Roll.Old = slices.Clone(r.Roll.Old)
	}
	return &c
}

func cloneResources(in map[string]*resource) map[string]*resource {
	out := make(map[string]*resource, len(in))
	for name, r := range in {
		out[name] = r.clone()
	}
	return out
}

// The statuses of stacks and resources are composed: an action and how it stands.
const (
	inProgress = "_IN_PROGRESS"
	complete   = "_COMPLETE"
	failed     = "_FAILED"
	review     = "REVIEW_IN_PROGRESS"
	deleted    = "DELETE_COMPLETE"
)

// note records an event. The caller is inside the book.
func (s *Service) note(st *stack, e event) {
	e.At = s.cfg.Now().UTC()
	if n := len(st.Events); n > 0 && !e.At.After(st.Events[n-1].At) {
		e.At = st.Events[n-1].At.Add(time.Microsecond) // in order, whatever the clock says
	}
	e.ID = e.Logical + "-" + e.Status + "-" + e.At.Format("2006-01-02T15:04:05.000Z") + "-" + record.Hex(s.cfg.Rand, 6)
	if st.Op != nil {
		e.Token = st.Op.Token
	}
	st.Events = append(st.Events, e)
	s.book.Dirty()
}

// setStack changes a stack's status and notes it.
func (s *Service) setStack(st *stack, status, reason string) {
	st.Status, st.Reason = status, reason
	s.note(st, event{ID: s.uuid(), Logical: st.Name, Physical: st.ID, Type: stackType, Status: status, Reason: reason})
	if status == deleted {
		st.Deleted = s.cfg.Now().UTC()
	}
}

const stackType = "AWS::CloudFormation::Stack"

// setResource changes a resource's status and notes it.
func (s *Service) setResource(st *stack, r *resource, status, reason string) {
	r.Status, r.Reason, r.Changed = status, reason, s.cfg.Now().UTC()
	s.note(st, event{
		Logical: r.Logical, Physical: r.Physical, Type: r.Type, Status: status, Reason: reason, Properties: shown(r.Properties),
	})
}
