// SPDX-License-Identifier: Apache-2.0

// Package graph holds the desired cloud resources of one cluster and the references between them.
// It knows no cloud, no file format and no network.
//
// A [Ref] can only be got by adding a resource, so a resource can only point at one added before it: the graph is
// acyclic by construction, and the order of addition is an order in which it can be built.
package graph

import (
	"fmt"
	"slices"
)

// Kind names one type of resource in each of the languages we speak, and says how one of it is recognised.
type Kind struct {
	// Name is ours, as in addresses: "subnet".
	Name string
	// Terraform type such as aws_subnet.
	Terraform string
	// CloudFormation type such as AWS::EC2::Subnet.
	CloudFormation string
	// KeyProperties lists the properties that identify a resource which bears no tags: it is found through its parent.
	// Empty: found by the address in its tags.
	KeyProperties []string
	// ImplicitDependencies lists the kinds that must outlive a resource of this kind though no property refers to them (D8).
	// Deletion has no model to ask, so the kind says it.
	ImplicitDependencies []string
	// IdentityAttribute is the CloudFormation attribute that is our identity, where it is not what Ref returns.
	IdentityAttribute string
	// Attributes that AWS makes up, by CloudFormation's name, with Terraform's. The identity is not listed.
	Attributes map[string]string
	// VolatileAttributes lists those of Attributes that an update changes.
	VolatileAttributes []string
	// TerraformOptions are the keys of an attribute list, with the attributes that Terraform has for them.
	TerraformOptions map[string]string
	// CloudFormationExtra are properties that CloudFormation must be given to make what the API and Terraform make without.
	CloudFormationExtra map[string]any
	// StartsMachines says that it starts machines, which can say when they are well.
	StartsMachines bool
	// Outputs are the attributes that users of a template want to know, the identity as "".
	Outputs []string
	// IDParameterType is CloudFormation's type of a parameter that is the identity of one that exists, where it has one.
	IDParameterType string
}

// Resource is the desired state of one cloud resource: a plain struct whose exported fields carry an
// `aws:"PropertyName[,immutable][,always][,set][,write][,tags][,param][,scale][,propagated]"` tag; `tf:"[name][,inline][,one][,options][,is=VALUE]"`
// where Terraform's name is not the snake case or its shape is another one; `cfn:"[text][,of=TYPE][,type=TYPE][-]"` likewise. See [Field] and [RenderHints].
type Resource interface{ Kind() Kind }

// Addr identifies a resource within a graph, such as "subnet/private-a".
type Addr string

// Symbol is a value that AWS alone knows: an attribute of the resource at Addr, or its identity if Attribute is empty.
type Symbol struct {
	Addr      Addr
	Attribute string
}

// String renders s for a person, as in address.Attribute.
func (s Symbol) String() string {
	if s.Attribute == "" {
		return string(s.Addr)
	}

	return string(s.Addr) + "." + s.Attribute
}

// Ref points at another resource's identity. The zero Ref points nowhere.
type Ref[T Resource] struct {
	addr    Addr
	literal string
	label   string
}

// UnmanagedRef stands for a resource that is there already under id: it renders as a literal and is never planned (D6).
func UnmanagedRef[T Resource](id string) Ref[T] { return Ref[T]{literal: id} }

// NamedUnmanagedRef is [UnmanagedRef] under a name that users of a template know it by, who may put another one in its place.
func NamedUnmanagedRef[T Resource](name, id string) Ref[T] { return Ref[T]{literal: id, label: name} }

// Addr returns the address of what r points at; empty for an [UnmanagedRef] one.
func (r Ref[T]) Addr() Addr { return r.addr }

// Literal returns the identity if it is known, as of an [UnmanagedRef] one or after [Resolve].
func (r Ref[T]) Literal() string { return r.literal }

// Attr returns the attribute of what r points at, to be put into a [Text].
func (r Ref[T]) Attr(name string) Text {
	return Text{parts: []textPart{{symbol: Symbol{Addr: r.addr, Attribute: name}}}}
}

// ID returns the identity of what r points at, to be put into a [Text].
func (r Ref[T]) ID() Text {
	if r.addr == "" {
		return LiteralText(r.literal)
	}

	return r.Attr("")
}

// Reference is what every Ref[T] looks like to code that does not care about T.
type Reference interface {
	Addr() Addr
	Literal() string
	// KindName is the name of the kind pointed at.
	KindName() string
	// Label is the name of what exists; empty where it has none.
	Label() string
}

// Label implements [Reference].
func (r Ref[T]) Label() string { return r.label }

// KindName implements [Reference].
func (r Ref[T]) KindName() string { return r.ReferencedKind().Name }

// KindReference is what can say at what kind it points, wherever it points.
type KindReference interface{ ReferencedKind() Kind }

// ReferencedKind implements [KindReference].
func (Ref[T]) ReferencedKind() Kind {
	var t T
	return t.Kind()
}

// Node is a resource in a graph.
type Node struct {
	Addr     Addr
	Name     string
	Resource Resource
	// Deps are all that must exist first.
	Deps []Addr
	// ExplicitDeps are those of Deps that no field shows.
	ExplicitDeps []Addr
	// Protected says that deleting it loses what cannot be made again.
	Protected bool
}

// Graph is an ordered set of nodes. The zero Graph is empty and ready to use.
type Graph struct {
	nodes []*Node
	index map[Addr]*Node
}

// Address returns where a resource of kind k called name lies.
func Address(k Kind, name string) Addr { return Addr(k.Name + "/" + name) }

// Add puts r into g under name and returns a reference to it. What r needs but does not refer to is named in after.
// It panics if the address is taken: that is a bug in the model, not an input.
func Add[T Resource](g *Graph, name string, r T, after ...Reference) Ref[T] {
	n := &Node{Addr: Address(r.Kind(), name), Name: name, Resource: r}
	for _, s := range Symbols(r) {
		n.Deps = appendOnce(n.Deps, s.Addr)
	}

	for _, p := range after {
		if p.Addr() == "" || slices.Contains(n.Deps, p.Addr()) {
			continue
		}

		n.Deps, n.ExplicitDeps = append(n.Deps, p.Addr()), append(n.ExplicitDeps, p.Addr())
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

// Protect marks what r points at as holding data that cannot be made again.
func Protect[T Resource](g *Graph, r Ref[T]) { g.index[r.addr].Protected = true }

// Nodes returns the nodes, each after everything it refers to.
func (g *Graph) Nodes() []*Node { return g.nodes }

// Node returns the node at addr, or nil.
func (g *Graph) Node(addr Addr) *Node { return g.index[addr] }

func appendOnce(list []Addr, a Addr) []Addr {
	if slices.Contains(list, a) {
		return list
	}

	return append(list, a)
}
