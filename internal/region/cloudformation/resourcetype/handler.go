// SPDX-License-Identifier: Apache-2.0

// Package resourcetype is the table of the resource types that the region's CloudFormation can create: for
// each type, its schema and the functions that create, update and delete one resource by calls to the
// region's other services. It knows no stack and no order of resources. What a function needs of the stack is
// in its [Request]; what it needs of the engine is the interface [Engine].
package resourcetype

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// Type is one resource type. To add a type, add an entry to the table of its service, and its schema (see
// TestSchemas).
type Type struct {
	// Create creates the resource and sets the request's physical ID. It does not wait: that is what
	// Stabilize is for.
	Create func(ctx context.Context, req *Request) error
	// Stabilize waits until the resource is ready, does the rest of the creation and sets the request's
	// attributes. It must be idempotent: after a restart it runs again. nil if there is nothing to do.
	Stabilize func(ctx context.Context, req *Request) error
	// Update changes the resource from OldProperties to Properties. nil if every change replaces it.
	Update func(ctx context.Context, req *Request) error
	// Delete deletes the resource. An error for which [IsNotFound] is true counts as success.
	Delete func(ctx context.Context, req *Request) error
	// IsDeleted reports whether a deletion has ended. nil if Delete deletes at once.
	IsDeleted func(ctx context.Context, req *Request) (bool, error)
	// FindCreated looks for a resource that an interrupted Create has created, and sets the request's
	// physical ID. nil if the engine looks for the stack's tags.
	FindCreated func(ctx context.Context, req *Request) (bool, error)
	// NameProperty is the property that names the resource, such as RoleName; empty if it has none.
	NameProperty string
	// MaxNameLength is the maximum length of a name that CloudFormation generates; 0 for no limit.
	MaxNameLength int
	// ReplacementProperties are properties whose change replaces the resource although the schema does not
	// require that.
	ReplacementProperties []string
	// NeedsCapability is set if a template with the type needs CAPABILITY_IAM or CAPABILITY_NAMED_IAM.
	NeedsCapability bool
	// CountsOwnSignals is set if the type waits for signals by its properties, not by a CreationPolicy.
	CountsOwnSignals bool

	// extraAttributes are attributes of Fn::GetAtt that are not read-only properties of the schema.
	extraAttributes []string
}

// table is built once: the catalog is asked for every resource of every template.
//
//nolint:gochecknoglobals // an immutable table of functions
var table = sync.OnceValue(func() map[string]Type {
	out := map[string]Type{}
	for _, part := range []map[string]Type{
		networkTypes(),
		routeTypes(),
		securityTypes(),
		computeTypes(),
		scalingTypes(),
		balancerTypes(),
		iamTypes(),
		kmsTypes(),
		hostedZoneTypes(),
		parameterTypes(),
		logTypes(),
		lambdaTypes(),
		eventTypes(),
		topicTypes(),
		waitConditionTypes(),
		customResourceTypes(),
	} {
		maps.Copy(out, part)
	}

	return out
})

// Lookup returns the type of that name, such as AWS::EC2::VPC.
func Lookup(name string) (Type, bool) {
	t, ok := table()[name]
	return t, ok
}

// Catalog returns the catalog of types for [template.Parse].
func Catalog() template.Catalog { return catalog{} }

type catalog struct{}

// HasType implements [template.Catalog].
func (catalog) HasType(name string) bool {
	_, ok := Lookup(name)
	return ok
}

// HasAttribute implements [template.Catalog].
func (catalog) HasAttribute(name, attribute string) bool {
	return slices.Contains(schemas()[name].ReadOnly, strings.ReplaceAll(attribute, ".", "/")) ||
		slices.Contains(table()[name].extraAttributes, attribute)
}

// SupportsSnapshot implements [template.Catalog].
func (catalog) SupportsSnapshot(name string) bool { return name == "AWS::EC2::Volume" }

// Request is one operation on one resource. It belongs to the goroutine that runs the operation.
type Request struct {
	// Engine is the engine that runs the request.
	Engine Engine
	// StackID is the ARN of the resource's stack.
	StackID string
	// StackName is the name of the resource's stack.
	StackName string
	// LogicalID is the resource's name in the template.
	LogicalID string
	// TypeName is the name of Type, such as AWS::EC2::VPC.
	TypeName string
	// Type is the resource's type.
	Type Type
	// Properties are the evaluated properties that the resource is to have.
	Properties template.Object
	// OldProperties are the properties that the resource has; the same as Properties for a creation.
	OldProperties template.Object
	// PhysicalID is the ID that the service gave the resource; empty before Create has set it.
	PhysicalID string
	// Attributes are the values of Fn::GetAtt by attribute; Stabilize and Update set them.
	Attributes template.Object
	// StackTags are the stack's tags, which the resource gets as well.
	StackTags map[string]string
	// OldStackTags are the stack's tags before an update.
	OldStackTags map[string]string
	// Resumed is set if an earlier process may have begun the operation.
	Resumed bool
	// Policy is the resource's CreationPolicy or UpdatePolicy, evaluated.
	Policy template.Object
	// Rollback is set if the operation undoes an update.
	Rollback bool
}

// Engine is what a resource type needs of the CloudFormation engine.
type Engine interface {
	Services
	Record
	CustomResources

	// Account returns the account ID.
	Account() string
	// RandomHex returns n random hexadecimal digits.
	RandomHex(n int) string
}

// Services calls the region's other services.
type Services interface {
	// Call carries out an operation as the stack's caller, which is in ctx. The members of in and of the
	// answer have the names of aws-sdk-go. A refusal by the service is a [*CallError].
	Call(ctx context.Context, service, op string, in template.Object) (template.Object, error)
	// CallAsSystem is Call with the rights of the region itself.
	CallAsSystem(ctx context.Context, service, op string, in template.Object) (template.Object, error)
	// Poll calls ready at the poll interval until it returns true or an error. It returns ErrWaitTimeout
	// after limit; 0 is the longest time that a resource may take to become ready.
	Poll(ctx context.Context, limit time.Duration, ready func() (bool, error)) error
}

// Record is what the engine has stored about the request's resource. Each method saves what it changes.
type Record interface {
	// SavePhysicalID stores the request's physical ID and puts the stack's system tags on the resource.
	SavePhysicalID(ctx context.Context, req *Request) error
	// AddProgressEvent adds an event with the resource's current status.
	AddProgressEvent(req *Request, reason string) error
	// BeginRollingUpdate stores what first returns, unless a rolling update is stored already, and returns a
	// copy of the stored one.
	BeginRollingUpdate(req *Request, first func() RollingUpdate) (RollingUpdate, error)
	// ChangeRollingUpdate changes the stored rolling update and returns a copy of it.
	ChangeRollingUpdate(req *Request, change func(*RollingUpdate)) (RollingUpdate, error)
	// NewSignalURL returns a new URL to which signals about the resource can be sent.
	NewSignalURL(req *Request) string
	// WaitForSignals waits for signals about the resource.
	WaitForSignals(ctx context.Context, req *Request, wait SignalWait) error
	// ClearSignals deletes the signals that have arrived.
	ClearSignals(req *Request) error
	// SignalData returns the data of the signals that have arrived, by the ID of the sender.
	SignalData(req *Request) map[string]string
}

// SignalWait describes the signals that a resource waits for.
type SignalWait struct {
	// Count is the number of signals.
	Count int
	// MinSuccessPercent is the percentage of Count that must report success.
	MinSuccessPercent int
	// Timeout is the longest time to wait.
	Timeout time.Duration
}

// callOperation carries out an operation as the stack's caller.
func (req *Request) callOperation(
	ctx context.Context,
	service, op string,
	in template.Object,
) (template.Object, error) {
	return req.Engine.Call(ctx, service, op, in)
}

// runOperation is callOperation without the answer.
func (req *Request) runOperation(ctx context.Context, service, op string, in template.Object) error {
	_, err := req.callOperation(ctx, service, op, in)
	return err
}

// waitUntil polls until ready returns true.
func (req *Request) waitUntil(ctx context.Context, ready func() (bool, error)) error {
	return req.Engine.Poll(ctx, 0, ready)
}

// setPhysicalID sets the physical ID and stores it before anything else happens, so that a restart finds the
// resource.
func (req *Request) setPhysicalID(ctx context.Context, id any) error {
	req.PhysicalID, _ = template.ScalarText(id)
	if req.PhysicalID == "" {
		return fmt.Errorf("create %s: the service returned no ID", req.LogicalID)
	}

	return req.Engine.SavePhysicalID(ctx, req)
}

// stringProperty returns a property as text; empty if it is not set.
func (req *Request) stringProperty(property string) string {
	t, _ := template.ScalarText(req.Properties[property])
	return t
}

// physicalName returns the name of the resource: the name property, or a name made of the stack's and the
// resource's.
func (req *Request) physicalName() string {
	if n := req.stringProperty(req.Type.NameProperty); n != "" {
		return n
	}

	suffix := "-" + strings.ToUpper(req.Engine.RandomHex(12))
	base := req.StackName + "-" + req.LogicalID
	if limit := req.Type.MaxNameLength; limit > 0 && len(base)+len(suffix) > limit {
		base = base[:limit-len(suffix)]
	}

	return base + suffix
}

// hasProperty reports whether a property is set.
func (req *Request) hasProperty(property string) bool { return req.Properties[property] != nil }

// pickProperties returns the named properties that are set.
func (req *Request) pickProperties(names ...string) template.Object {
	out := template.Object{}
	for _, n := range names {
		if v, ok := req.Properties[n]; ok && v != nil {
			out[n] = v
		}
	}

	return out
}

// omitProperties returns all properties except the named ones.
func (req *Request) omitProperties(but ...string) template.Object {
	out := template.Object{}
	for n, v := range req.Properties {
		if !slices.Contains(but, n) && v != nil {
			out[n] = v
		}
	}

	return out
}

// propertyChanged reports whether one of the properties changes.
func (req *Request) propertyChanged(names ...string) bool {
	return slices.ContainsFunc(
		names,
		func(n string) bool {
			return template.CanonicalText(req.Properties[n]) != template.CanonicalText(req.OldProperties[n])
		},
	)
}
