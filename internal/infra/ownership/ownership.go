// SPDX-License-Identifier: Apache-2.0

// Package ownership decides whether existing AWS resources belong to a cluster of a state store, or to another
// cluster that has the same name.
//
// A cluster is identified by a random id, which its state store records and which is a tag of its resources.
// In addition one resource, the [Bearer], has the address of the state store and a random token, which
// changes with each operation. A store whose token AWS does not have is an outdated copy. See docs/design/0010.
//
// The package is pure: it compares what was read.
package ownership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Bearer is the address of the resource that has the address of the state store and its token: the etcd
// volume of the first slot, which every cluster has and which lives as long as the cluster.
const Bearer = graph.Addr("volume/etcd-a")

// Unmarked stands for the id of resources that have none, where a person takes them over.
const Unmarked = "unmarked"

// Owner is a cluster as its state store records it.
type Owner struct {
	// Cluster is the cluster's name.
	Cluster string
	// ID is the cluster's id. Empty: the state store does not have the cluster.
	ID string
	// Store is the URL of the state store, for messages.
	Store string
	// Tokens are the tokens of which AWS may have one; nil before the first apply.
	Tokens []string
	// Applied reports whether the state store has ever applied the resource with an address. Resources
	// without an id belong to the cluster only if it has.
	Applied func(graph.Addr) bool
	// TakeOver is the id of the resources that a person takes over: that of the cluster, to override Tokens;
	// or [Unmarked]. Empty: none.
	TakeOver string
}

// Resource is an existing resource that does not belong to the cluster.
type Resource struct {
	// Addr is its address, such as vpc/main.
	Addr graph.Addr
	// ID is AWS's id of it.
	ID string
	// ClusterID is the id in its tag; empty if it has none.
	ClusterID string
}

// ForeignError is the error for resources that have the cluster's name and belong to another cluster.
type ForeignError struct {
	// Owner that they do not belong to.
	Owner Owner
	// Resources are all of them.
	Resources []Resource
	// Store is the URL of the state store that manages them; empty if it is unknown.
	Store string
}

// maxNamed is how many resources an error names.
const maxNamed = 3

// Error implements error.
func (e *ForeignError) Error() string {
	first := e.Resources[0]
	if first.ClusterID == "" {
		return fmt.Sprintf(
			"AWS has resources of a cluster %s that the state store %s has not created, without a cluster id: %s",
			e.Owner.Cluster, e.Owner.Store, nameResources(e.Resources),
		)
	}

	of := "its state store is not recorded in AWS yet"
	switch {
	case e.Store != "":
		of = "its state store is " + e.Store
	case !slices.ContainsFunc(e.Resources, func(r Resource) bool { return !isRecord(r) }):
		of = "it is in another region or account, and has DNS records in the same hosted zone"
	}

	own := "does not have that cluster"
	if e.Owner.ID != "" {
		own = "has the cluster " + e.Owner.Cluster + " with the id " + e.Owner.ID
	}

	return fmt.Sprintf(
		"AWS has another cluster %s, with the id %s; %s. The state store %s %s. Resources of the other cluster: %s",
		e.Owner.Cluster, first.ClusterID, of, e.Owner.Store, own, nameResources(e.Resources),
	)
}

func isRecord(r Resource) bool { return plan.KindOf(r.Addr) == awskind.DNSRecord{}.Kind().Name }

func nameResources(rs []Resource) string {
	var names []string
	for _, r := range rs[:min(len(rs), maxNamed)] {
		names = append(names, fmt.Sprintf("%s (%s)", r.Addr, r.ID))
	}

	text := strings.Join(names, ", ")
	if more := len(rs) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}

	return text
}

// Hint says what to do.
func (e *ForeignError) Hint() string {
	first := e.Resources[0]
	name := e.Owner.Cluster
	if first.ClusterID == "" {
		return "use the state store that created them; if these are all resources of this cluster: " +
			"rerun with --take-over " + Unmarked
	}

	use := "use its state store" + stateFlag(e.Store)

	if e.Owner.ID == "" {
		return use + "; if that is lost: slipway delete cluster " + name + " --take-over " + first.ClusterID
	}

	return use + ", or give the new cluster another name"
}

// OnMachine separates the URL of a folder from the machine that has it, in [Marks].
const OnMachine = " at "

// stateFlag returns how to use a state store, as the rest of a hint.
func stateFlag(store string) string {
	url, machine, isFolder := strings.Cut(store, OnMachine)
	switch {
	case store == "":
		return ""
	case isFolder:
		return ", on " + machine + " with --state " + url
	default:
		return ", with --state " + url
	}
}

// CopyError is the error for a state store that is an outdated copy: another copy changed the cluster since.
type CopyError struct {
	// Owner is the cluster as the outdated copy records it.
	Owner Owner
	// Resource is the one that has the token.
	Resource Resource
	// Store is the URL of the copy that changed the cluster last; empty if it is unknown.
	Store string
}

// Error implements error.
func (e *CopyError) Error() string {
	other := "another copy of the state store"
	if e.Store != "" {
		other += ", " + e.Store + ","
	}

	return fmt.Sprintf(
		"%s has changed cluster %s since %s did: the ownership token of %s (%s) in AWS is not the one of this copy",
		other, e.Owner.Cluster, e.Owner.Store, e.Resource.Addr, e.Resource.ID,
	)
}

// Hint says what to do.
func (e *CopyError) Hint() string {
	return "use the other copy" + stateFlag(e.Store) +
		"; to continue with this one, and have the other one rejected: rerun with --take-over " +
		e.Owner.ID
}

// Check returns an error of type [*ForeignError] or [*CopyError], with a hint, if a resource belongs to
// another cluster or was changed by another copy of the state store.
func (o Owner) Check(actual []plan.ActualResource) error {
	var foreign []Resource
	for _, a := range actual {
		if r, told := o.resourceOf(a); told && !o.owns(r) {
			foreign = append(foreign, r)
		}
	}

	marks, _ := MarksOf(actual)
	if len(foreign) > 0 {
		// First those with an id: they tell more than those without.
		slices.SortStableFunc(foreign, func(x, y Resource) int { return strings.Compare(y.ClusterID, x.ClusterID) })

		return withHint(&ForeignError{Owner: o, Resources: foreign, Store: marks.Store})
	}

	return o.CheckMarks(marks)
}

// CheckMarks returns an error of type [*CopyError] if another copy of the state store has written the marks.
// Without a token there is nothing to compare: nothing was applied since clusters have ids, or the tag was
// removed by hand.
func (o Owner) CheckMarks(m Marks) error {
	if m.Token == "" || slices.Contains(o.Tokens, m.Token) || o.TakeOver == o.ID && o.ID != "" {
		return nil
	}

	return withHint(&CopyError{Owner: o, Resource: m.Resource, Store: m.Store})
}

// CheckTags is Check for the tags of one resource that is not in the graph, such as a stack. known reports
// whether the state store has created it.
func (o Owner) CheckTags(r Resource, known bool) error {
	if r.ClusterID == o.ID && o.ID != "" || r.ClusterID == "" && (known || o.TakeOver == Unmarked) {
		return nil
	}

	return withHint(&ForeignError{Owner: o, Resources: []Resource{r}})
}

// CheckLeftovers returns an error if there are resources of programs in a cluster, and the state store has
// never created a cluster of this name. These programs know the name of the cluster only.
func (o Owner) CheckLeftovers(found []plan.ActualResource, applied bool) error {
	if applied || o.TakeOver != "" || len(found) == 0 {
		return nil
	}

	e := &ForeignError{Owner: o}
	for _, a := range found {
		e.Resources = append(e.Resources, Resource{Addr: a.Addr, ID: a.ID})
	}

	return withHint(e)
}

func (o Owner) owns(r Resource) bool {
	if r.ClusterID != "" {
		return r.ClusterID == o.ID
	}

	return o.TakeOver == Unmarked || o.Applied != nil && o.Applied(r.Addr)
}

// resourceOf returns an existing resource with the id of its cluster, which is in its tags or, for a DNS record,
// in its set identifier. It returns false for a kind that has neither, such as routes: these belong to a resource
// that has one.
func (o Owner) resourceOf(a plan.ActualResource) (Resource, bool) {
	if r, ok := a.Resource.(awskind.DNSRecord); ok {
		id, _ := awskind.RecordSetOwner(r.SetID, o.Cluster)
		return Resource{Addr: RecordAddr(r), ID: a.ID, ClusterID: id}, true
	}

	return taggedResource(a), hasTags(a)
}

// RecordAddr returns the address by which [Owner.Applied] knows a DNS record. Its address in a graph does not
// tell the zone.
func RecordAddr(r awskind.DNSRecord) graph.Addr {
	return graph.Address(r.Kind(), strings.Join([]string{r.Zone.Literal(), r.Name, r.Type}, "/"))
}

func hasTags(a plan.ActualResource) bool {
	return slices.ContainsFunc(graph.Properties(a.Resource), func(f graph.Field) bool { return f.IsTags })
}

func taggedResource(a plan.ActualResource) Resource {
	return Resource{Addr: a.Addr, ID: a.ID, ClusterID: graph.TagValue(a.Resource, awskind.TagClusterID)}
}

// Marks are what the [Bearer] has besides its tags of every resource.
type Marks struct {
	// Resource that has them.
	Resource Resource
	// Store is the URL of the state store that changed the cluster last.
	Store string
	// Token of that store.
	Token string
	// Revision of the documents that were signed or applied last; zero if they were not signed.
	Revision int64
}

// MarksOf returns the marks of the bearer among the existing resources; false if it does not exist.
func MarksOf(actual []plan.ActualResource) (Marks, bool) {
	for _, a := range actual {
		if a.Addr == Bearer {
			// A value that is no number is none of ours. Tags of EC2 are out of reach of those who only write to the store.
			revision, _ := strconv.ParseInt(graph.TagValue(a.Resource, graph.StateRevisionTag), 10, 64)

			return Marks{
				Resource: taggedResource(a),
				Store:    graph.TagValue(a.Resource, graph.StateStoreTag),
				Token:    graph.TagValue(a.Resource, graph.OwnershipTokenTag),
				Revision: revision,
			}, true
		}
	}

	return Marks{}, false
}

// hinted is an error with a hint of its own.
type hinted interface {
	error
	Hint() string
}

func withHint(err hinted) error { return diag.WithHint(err, err.Hint()) }
