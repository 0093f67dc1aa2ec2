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

// serviceState is the saved state of the service. The names of its fields, and those of the types below it,
// are the format on disk.
type serviceState struct {
	Stacks map[string]*stack // by ID, which is an ARN
}

// stackContent is the part of a stack that an update replaces as a whole.
type stackContent struct {
	Body       string
	Params     map[string]template.ParameterValue
	Tags       map[string]string
	Outputs    []stackOutput
	Imports    []string // names of imported exports
	Described  string   // description of the template
	Capability []string
}

// stack is the record of a stack. The record of a deleted stack is kept.
type stack struct {
	ID, Name, Status, Reason  string
	Created, Updated, Deleted time.Time
	stackContent
	Resources       map[string]*resource // by logical ID
	Events          []stackEvent         // oldest first
	ChangeSets      map[string]*changeSet
	Policy          string
	Protected       bool
	DisableRollback bool
	OnFailure       string
	Timeout         int64 // minutes; 0 for none
	Role            string
	ChangeSetID     string          // the change set that was executed last
	Op              *stackOperation // running; nil for none
	Stuck           *stackOperation // the update whose rollback failed
}

// resource is the record of one resource of a stack.
type resource struct {
	Logical, Type, Physical string
	Status, Reason          string
	Changed                 time.Time
	Properties              template.Object // evaluated, as last applied
	Attributes              template.Object
	After                   []string // logical IDs of its dependencies
	DeletionPolicy          string
	UpdateReplacePolicy     string
	Description             string
	Signals                 []resourceSignal            `json:"signals,omitempty"`
	CreationStarted         bool                        `json:"begun,omitempty"`   // Create was called and may have succeeded
	WaitingForSignals       bool                        `json:"waiting,omitempty"` // for signals
	RollingUpdate           *resourcetype.RollingUpdate `json:"roll,omitempty"`
	PreviousProperties      template.Object             `json:"from,omitempty"` // before the running update; nil if none runs
}

// policies returns the policies that the last operation has applied.
func (r *resource) policies() template.Policies {
	return template.Policies{Deletion: r.DeletionPolicy, UpdateReplace: r.UpdateReplacePolicy}
}

// resourceSignal is a signal about the readiness of a resource.
type resourceSignal struct {
	ID      string
	Success bool
	Data    string
}

type stackOutput struct{ Key, Value, Description, Export string }

// stackEvent is one event of a stack.
type stackEvent struct {
	ID, Logical, Physical, Type, Status, Reason string
	At                                          time.Time
	Token                                       string
	Properties                                  string
}

// Kinds of stackOperation.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

// stackOperation is the running operation of a stack. It is saved, so that a restarted region resumes it.
type stackOperation struct {
	Kind, Phase string
	Token       string // ClientRequestToken
	Caller      wire.Caller
	Begun       time.Time
	Retain      []string // logical IDs to keep in a deletion
	// Old is the content before an update; New is the content to apply.
	Old, New      stackContent
	OldResources  map[string]*resource
	Garbage       []*resource // to delete in the last phase
	Done          map[string]bool
	Touched       map[string]bool
	Cancelled     string // the reason, if the update was cancelled
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

// clone copies a resource. The copies share Properties, which are never changed in place.
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

// A status of a stack or a resource is an action and one of these suffixes. These three have no action.
const (
	suffixInProgress = "_IN_PROGRESS"
	suffixComplete   = "_COMPLETE"
	suffixFailed     = "_FAILED"
	statusReview     = "REVIEW_IN_PROGRESS"
	statusDeleted    = "DELETE_COMPLETE"
)

// addEvent adds an event to a stack. The caller holds the store's lock.
func (s *Service) addEvent(st *stack, e stackEvent) {
	e.At = s.cfg.Now().UTC()
	if n := len(st.Events); n > 0 && !e.At.After(st.Events[n-1].At) {
		e.At = st.Events[n-1].At.Add(time.Microsecond) // events are in order even if the clock is not
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

// setStackStatus sets the status of a stack and adds an event. The caller holds the store's lock.
func (s *Service) setStackStatus(st *stack, status, reason string) {
	st.Status = status
	st.Reason = reason
	s.addEvent(st, stackEvent{
		ID:       sdkshape.RandomUUID(s.cfg.Rand),
		Logical:  st.Name,
		Physical: st.ID,
		Type:     stackTypeName,
		Status:   status,
		Reason:   reason,
	})
	begins := status == "DELETE"+suffixInProgress || status == "ROLLBACK"+suffixInProgress
	if begins || status == statusDeleted && st.Deleted.IsZero() {
		st.Deleted = s.cfg.Now().UTC()
	}
}

const stackTypeName = "AWS::CloudFormation::Stack"

// setResourceStatus sets the status of a resource and adds an event. The caller holds the store's lock.
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
