// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// serviceState is all that is remembered; it is saved as JSON.
type serviceState struct {
	Stacks map[string]*stack // by id, which is an ARN
}

// stackContent is what a stack is made of: it changes as a whole.
type stackContent struct {
	Body       string
	Params     map[string]template.ParameterValue
	Tags       map[string]string
	Outputs    []stackOutput
	Imports    []string // names of other stacks' exports
	Described  string   // the template's description
	Capability []string
}

// stack is a stack, or what is remembered of a deleted one.
type stack struct {
	ID, Name, Status, Reason  string
	Created, Updated, Deleted time.Time
	stackContent
	Resources       map[string]*resource // by logical id
	Events          []stackEvent         // oldest first
	ChangeSets      map[string]*changeSet
	Policy          string
	Protected       bool
	DisableRollback bool
	OnFailure       string
	Timeout         int64 // minutes; 0 for none
	Role            string
	Notify          []string
	ChangeSetID     string          // the change set that was executed last
	Op              *stackOperation // under way
	Stuck           *stackOperation // an update whose rollback failed
}

// resource is a resource of a stack.
type resource struct {
	Logical, Type, Physical string
	Status, Reason          string
	Changed                 time.Time
	Properties              template.Object // evaluated, as they were last applied
	Attributes              template.Object
	After                   []string // what it depends on
	DeletionPolicy          string
	UpdateReplacePolicy     string
	Description             string
	Signals                 []resourceSignal            `json:"signals,omitempty"`
	CreationStarted         bool                        `json:"begun,omitempty"`   // its creation was begun, and perhaps done
	WaitingForSignals       bool                        `json:"waiting,omitempty"` // for signals
	RollingUpdate           *resourcetype.RollingUpdate `json:"roll,omitempty"`
	PreviousProperties      template.Object             `json:"from,omitempty"` // its properties before the change under way
}

// resourceSignal is a message about a resource's readiness.
type resourceSignal struct {
	ID      string
	Success bool
	Data    string
}

type stackOutput struct{ Key, Value, Description, Export string }

// stackEvent is one line of a stack's history.
type stackEvent struct {
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

// stackOperation is what happens to a stack. Everything in it survives a restart.
type stackOperation struct {
	Kind, Phase string
	Token       string // the client's
	Caller      wire.Caller
	Begun       time.Time
	Retain      []string // resources that a deletion leaves alone
	// Old is the stack before an update; New is what it is to become.
	Old, New      stackContent
	OldResources  map[string]*resource
	Garbage       []*resource // to delete at the end
	Done          map[string]bool
	Touched       map[string]bool
	Cancelled     string // why it is to be rolled back
	DuringPolicy  string // replaces the stack policy for this update
	Skip          []string
	KeepOnFailure bool
}

func (c stackContent) clone() stackContent {
	c.Params = maps.Clone(c.Params)
	c.Tags = maps.Clone(c.Tags)
	c.Outputs = slices.Clone(c.Outputs)
	c.Imports = slices.Clone(c.Imports)
	c.Capability = slices.Clone(c.Capability)

	return c
}

// clone copies a resource; its trees are shared, for nobody changes them in place.
func (r *resource) clone() *resource {
	c := *r
	c.After = slices.Clone(r.After)
	c.Signals = slices.Clone(r.Signals)
	c.Attributes = maps.Clone(r.Attributes)
	if r.RollingUpdate != nil {
		c.RollingUpdate = new(r.RollingUpdate.Clone())
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
	suffixInProgress = "_IN_PROGRESS"
	suffixComplete   = "_COMPLETE"
	suffixFailed     = "_FAILED"
	statusReview     = "REVIEW_IN_PROGRESS"
	statusDeleted    = "DELETE_COMPLETE"
)

// addEvent records an event. The caller is inside the book.
func (s *Service) addEvent(st *stack, e stackEvent) {
	e.At = s.cfg.Now().UTC()
	if n := len(st.Events); n > 0 && !e.At.After(st.Events[n-1].At) {
		e.At = st.Events[n-1].At.Add(time.Microsecond) // in order, whatever the clock says
	}

	e.ID = e.Logical + "-" + e.Status + "-" + e.At.Format(
		"2006-01-02T15:04:05.000Z",
	) + "-" + sdkshape.RandomHex(
		s.cfg.Rand,
		6,
	)
	if st.Op != nil {
		e.Token = st.Op.Token
	}

	st.Events = append(st.Events, e)
	s.store.MarkChanged()
}

// setStackStatus changes a stack's status and notes it.
func (s *Service) setStackStatus(st *stack, status, reason string) {
	st.Status = status
	st.Reason = reason
	s.addEvent(st, stackEvent{
		ID:       s.newUUID(),
		Logical:  st.Name,
		Physical: st.ID,
		Type:     stackTypeName,
		Status:   status,
		Reason:   reason,
	})
	if status == statusDeleted {
		st.Deleted = s.cfg.Now().UTC()
	}
}

const stackTypeName = "AWS::CloudFormation::Stack"

// setResourceStatus changes a resource's status and notes it.
func (s *Service) setResourceStatus(st *stack, r *resource, status, reason string) {
	r.Status = status
	r.Reason = reason
	r.Changed = s.cfg.Now().UTC()
	s.addEvent(st, stackEvent{
		Logical:    r.Logical,
		Physical:   r.Physical,
		Type:       r.Type,
		Status:     status,
		Reason:     reason,
		Properties: propertiesJSON(r.Properties),
	})
}
