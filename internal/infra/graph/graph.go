// SPDX-License-Identifier: Apache-2.0

// Package graph holds the desired cloud resources of one cluster and the references between them.
// It does not know any cloud, file format or network.
//
// A resource is a plain struct; its [Kind] has the names that Slipway, CloudFormation and Terraform use for
// its type, and the rules that the planner follows. A [Graph] holds resources under addresses such as
// subnet/private-a. A [Ref] is a reference to another resource: either to one in the graph, or to one that
// exists in AWS and that Slipway does not manage. A [Text] is a string that may contain attributes which only
// AWS knows.
//
// The only way to get a Ref to a resource of the graph is to add the resource, so a resource can refer only
// to resources that were added before it. The graph is therefore acyclic by construction, and the order of
// addition is a valid order of creation.
package graph

import (
	"fmt"
	"slices"
)

// Kind describes one type of resource: its names in Slipway, Terraform and CloudFormation, how an existing
// resource is matched with a desired one, and how the planner changes it. The kinds are declared in package
// awskind.
type Kind struct {
	// Name is Slipway's name of the kind, as in addresses. Example: "subnet".
	Name string
	// Terraform is Terraform's resource type. Example: "aws_subnet".
	Terraform string
	// CloudFormation is CloudFormation's resource type. Example: "AWS::EC2::Subnet".
	CloudFormation string
	// KeyProperties lists the properties that identify a resource that cannot have tags: it is found through
	// its parent. Example: RouteTableId and DestinationCidrBlock of a route. Empty: it is found by the
	// address in its tags.
	KeyProperties []string
	// ImplicitDependencies lists the kinds that must outlive a resource of this kind although no property
	// refers to them. Example: a NAT gateway needs the attachment of the internet gateway. Deletion has no
	// model to ask, so the kind declares it. See docs/design/0003.
	ImplicitDependencies []string
	// DeletedWith is the parent with which AWS deletes a resource of this kind. Zero: none, the resource needs a
	// deletion of its own.
	DeletedWith Parent
	// IdentityAttribute is the CloudFormation attribute that is Slipway's identity of the resource. Example:
	// "GroupId". Empty: the identity is what CloudFormation's Ref returns.
	IdentityAttribute string
	// Attributes maps the attributes that AWS assigns, by CloudFormation's name, to Terraform's names.
	// Example: "Arn" to "arn". The identity is not listed.
	Attributes map[string]string
	// VolatileAttributes lists those of Attributes that an update changes. Example: "LatestVersionNumber".
	VolatileAttributes []string
	// TerraformOptions maps the keys of an attribute list to Terraform's attributes. Example:
	// "deregistration_delay.timeout_seconds" to "deregistration_delay". See [RenderHints.TerraformOptions].
	TerraformOptions map[string]string
	// CloudFormationExtra holds properties that a template must set so that CloudFormation creates the same
	// resource as the API and Terraform do without them. Example: an egress rule that matches nothing.
	CloudFormationExtra map[string]any
	// StartsMachines is true if the resource starts machines, which can signal CloudFormation when they are
	// healthy.
	StartsMachines bool
	// Outputs lists the attributes that rendered templates have as outputs; "" is the identity.
	Outputs []string
	// IDParameterType is CloudFormation's parameter type for the identity of an existing resource. Example:
	// "AWS::EC2::VPC::Id". Empty: String.
	IDParameterType string
	// Lifecycle is how the planner replaces, changes and deletes resources of this kind.
	Lifecycle Lifecycle
}

// Parent is the resource with which AWS deletes another one, its child. Example: a subnet, and its association
// with a route table.
type Parent struct {
	// Kind is the name of the parent's kind. The first reference of the child to this kind is its parent.
	Kind string
	// Blocks lists the kinds of the other resources that AWS refuses to delete while the child refers to them.
	Blocks []string
}

// Replacement is what the planner does when an immutable property changes.
type Replacement int

const (
	// DeleteFirst deletes the old resource before it creates the new one: AWS does not allow both at once.
	// The default.
	DeleteFirst Replacement = iota
	// CreateFirst creates the new resource first, so that its users are never without one.
	CreateFirst
	// ForbidReplacement makes the change an error finding with [Lifecycle.ForbiddenHint] as its hint.
	ForbidReplacement
)

// Lifecycle is how the planner treats resources of a kind, like the lifecycle block of a Terraform resource.
// The zero Lifecycle deletes before it creates and protects nothing.
type Lifecycle struct {
	// Replacement is what a change of an immutable property does. Default: [DeleteFirst].
	Replacement Replacement
	// ForbiddenHint tells the operator what to do instead, if Replacement is [ForbidReplacement].
	ForbiddenHint string
	// HoldsData is true if the resource holds data that cannot be recreated. Deleting or replacing it is an
	// error finding unless the operator passes --destroy-data. Example: an etcd volume.
	HoldsData bool
	// GrowOnlyProperty is a numeric property that AWS can increase but not decrease. Example: "Size" of a
	// volume.
	GrowOnlyProperty string
	// IgnoreChanges lists properties that are set on creation and then left to others. Example:
	// "DesiredCapacity" of an Auto Scaling group, which an autoscaler moves.
	IgnoreChanges []string
	// UpdateNote is shown on an update step of a plan. Empty: none.
	UpdateNote string
	// DeleteNote is shown on a delete step of a plan. Empty: none.
	DeleteNote string
}

// Resource is the desired state of one cloud resource: a plain struct whose exported fields have the tag
// `aws:"PropertyName[,immutable][,always][,whole][,set][,write][,tags][,param][,scale][,propagated]"`.
//
// A field whose Terraform name is not the snake case of the property, or whose shape differs there, also has
// the tag `tf:"[name][,inline][,one][,options][,is=VALUE][,map][,apart=TYPE][,with=ATTRIBUTE[[]]]"`; the name "-" leaves it out. CloudFormation's
// differences are in `cfn:"[text][,of=TYPE][,type=TYPE][,apart=TYPE][,with=PROPERTY[[]]][,-]"`. [Field] and
// [RenderHints] explain each option.
type Resource interface{ Kind() Kind }

// RolledOut is a resource with properties that only a rollout changes, not an apply. Example: the version of the launch
// template of an Auto Scaling group.
type RolledOut interface {
	Resource
	// KeepFrom returns the resource with these properties as an existing one of its kind has them.
	KeepFrom(existing Resource) Resource
	// KeptProperties returns the paths of these properties, such as "LaunchTemplate/Version".
	KeptProperties() []string
}

// Addr identifies a resource within a graph, such as "subnet/private-a".
type Addr string

// Symbol is a value that only AWS knows: an attribute of the resource at Addr.
type Symbol struct {
	// Addr is the address of a resource in the graph.
	Addr Addr
	// Attribute is CloudFormation's name of the attribute, such as "Arn"; empty: the resource's identity.
	Attribute string
}

// String renders s as address.Attribute, or as the address alone for the identity.
func (s Symbol) String() string {
	if s.Attribute == "" {
		return string(s.Addr)
	}

	return string(s.Addr) + "." + s.Attribute
}

// Ref refers to a resource of kind T by its identity. The zero Ref is unset.
type Ref[T Resource] struct {
	addr    Addr
	literal string
	label   string
}

// UnmanagedRef refers to a resource that exists in AWS under id and that Slipway does not manage: it renders
// as a literal and the planner never changes it.
func UnmanagedRef[T Resource](id string) Ref[T] { return Ref[T]{literal: id} }

// NamedUnmanagedRef is [UnmanagedRef] with a name: rendered templates have a parameter of that name, so that
// their users can set the identity of another resource.
func NamedUnmanagedRef[T Resource](name, id string) Ref[T] { return Ref[T]{literal: id, label: name} }

// Addr returns the address of the resource that r refers to; empty for an [UnmanagedRef].
func (r Ref[T]) Addr() Addr { return r.addr }

// Literal returns the identity if it is known: that of an [UnmanagedRef], or any after [Resolve].
func (r Ref[T]) Literal() string { return r.literal }

// Attr returns an attribute of the resource that r refers to, for use in a [Text]. name is CloudFormation's.
func (r Ref[T]) Attr(name string) Text {
	return Text{parts: []textPart{{symbol: Symbol{Addr: r.addr, Attribute: name}}}}
}

// ID returns the identity of the resource that r refers to, for use in a [Text].
func (r Ref[T]) ID() Text {
	if r.addr == "" {
		return LiteralText(r.literal)
	}

	return r.Attr("")
}

// Reference is implemented by every Ref[T], for code that does not depend on T.
type Reference interface {
	// Addr is the address in the graph; empty for an unmanaged resource.
	Addr() Addr
	// Literal is the identity in AWS; empty while it is unknown.
	Literal() string
	// KindName is the name of the kind that the reference points to.
	KindName() string
	// Label is the name given to [NamedUnmanagedRef]; empty for other references.
	Label() string
}

// Label implements [Reference].
func (r Ref[T]) Label() string { return r.label }

// KindName implements [Reference].
func (r Ref[T]) KindName() string { return r.ReferencedKind().Name }

// KindReference is implemented by references; ReferencedKind returns the kind of resource that the reference
// points to, even when it is unset.
type KindReference interface{ ReferencedKind() Kind }

// ReferencedKind implements [KindReference].
func (Ref[T]) ReferencedKind() Kind {
	var t T
	return t.Kind()
}

// Node is a resource in a graph.
type Node struct {
	// Addr is the address: the name of the kind, a slash and Name.
	Addr Addr
	// Name is unique among the resources of one kind.
	Name string
	// Resource is the desired state.
	Resource Resource
	// Deps lists the addresses of all resources that must exist first.
	Deps []Addr
	// ExplicitDeps lists those of Deps that no property of Resource refers to.
	ExplicitDeps []Addr
	// Protected is set by [Protect]: the resource holds data that cannot be recreated, so rendered templates
	// retain it.
	Protected bool
	// Internal is set by [MarkInternal]: nobody but the resources of the graph refers to the resource, so rendered
	// templates have no output for it.
	Internal bool
}

// Graph is an ordered set of nodes. The zero Graph is empty and ready to use. It must not be changed
// concurrently.
type Graph struct {
	nodes []*Node
	index map[Addr]*Node
}

// Address returns the address of the resource of kind k with the given name.
func Address(k Kind, name string) Addr { return Addr(k.Name + "/" + name) }

// Add adds r to g under name and returns a reference to it. after lists resources that r depends on without
// referring to them. Add panics if the address is taken or a reference points to another graph: both are bugs
// of the model, not of the input.
func Add[T Resource](g *Graph, name string, r T, after ...Reference) Ref[T] {
	n := &Node{Addr: Address(r.Kind(), name), Name: name, Resource: r}
	for _, s := range Symbols(r) {
		n.Deps = appendOnce(n.Deps, s.Addr)
	}

	for _, p := range after {
		if p.Addr() == "" || slices.Contains(n.Deps, p.Addr()) {
			continue
		}

		n.Deps = append(n.Deps, p.Addr())
		n.ExplicitDeps = append(n.ExplicitDeps, p.Addr())
	}

	for _, d := range n.Deps {
		if g.index[d] == nil {
			panic(fmt.Sprintf("graph: %s refers to %s, which is not in this graph", n.Addr, d))
		}
	}

	if g.index == nil {
		g.index = map[Addr]*Node{}
	}

	if _, dup := g.index[n.Addr]; dup {
		panic(fmt.Sprintf("graph: %s added twice", n.Addr))
	}

	g.index[n.Addr] = n
	g.nodes = append(g.nodes, n)

	return Ref[T]{addr: n.Addr}
}

// Protect marks the resource that r refers to as holding data that cannot be recreated. It does nothing for
// an unmanaged or unset reference: Slipway never deletes what it does not manage.
func Protect[T Resource](g *Graph, r Ref[T]) {
	if n := g.index[r.addr]; n != nil {
		n.Protected = true
	}
}

// MarkInternal marks the resource that r refers to as one that only resources of the graph refer to. It does nothing for
// an unmanaged or unset reference.
func MarkInternal[T Resource](g *Graph, r Ref[T]) {
	if n := g.index[r.addr]; n != nil {
		n.Internal = true
	}
}

// Nodes returns the nodes, each after all nodes that it depends on. The slice must not be changed.
func (g *Graph) Nodes() []*Node { return g.nodes }

// Node returns the node at addr; nil if there is none.
func (g *Graph) Node(addr Addr) *Node { return g.index[addr] }

func appendOnce(list []Addr, a Addr) []Addr {
	if slices.Contains(list, a) {
		return list
	}

	return append(list, a)
}
