// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// listElsewhere returns what policies allow outside of the cluster because its manifests name it, as it follows "operators may"
// or, for the policies of a reader, "readers may". state has the state store, if it is on S3.
func listElsewhere(in iampolicy.Input, state []iampolicy.StoreLocation) []string {
	var out []string
	for _, st := range in.Stores[len(state):] {
		out = append(out, listStore(in, st)...)
	}

	out = append(out, listZones(in)...)
	out = append(out, listIssuer(in)...)
	if !in.ReadOnly {
		return append(out, listExisting(in)...)
	}

	for _, profile := range in.Existing.Profiles {
		out = append(out, "read instance profile "+profile+whichIsNamed)
	}

	return out
}

// whichIsNamed says why a right is there.
const whichIsNamed = ", which the manifest names"

// listStore returns the rights to a machine store.
func listStore(in iampolicy.Input, st iampolicy.StoreLocation) []string {
	const listed = " the cluster's objects in "
	where := locationOf(st) + whichIsNamed + ", and list the names of all objects in the bucket"
	if in.ReadOnly {
		return []string{"read" + listed + where}
	}

	return []string{
		"read and write" + listed + where,
		"give roles of the cluster the permissions boundary " + iampolicy.BoundaryName(st.Bucket) +
			", that of the store, and not the one of the state store",
	}
}

// listZones returns the rights to hosted zones. IAM knows no tags of zones, so those that Slipway creates have no names.
func listZones(in iampolicy.Input) []string {
	var out []string
	if len(in.DNSNames) > 0 || in.CreatesZones {
		out = append(out, "read the records of all hosted zones of the account: the manifest asks for DNS names")
	}

	if in.ReadOnly {
		return out
	}

	if in.CreatesZones {
		out = append(
			out,
			"create hosted zones, and tag, comment, detach from their VPCs and, if they are empty, delete those of others: "+
				"the manifest has Slipway create one, and IAM cannot tell zones apart by their tags",
		)
	}

	if in.InterfaceEndpoints {
		out = append(
			out,
			"let VPCs resolve the names of any hosted zone of the account: the manifest asks for VPC endpoints with private DNS "+
				"names, whose zone is of AWS and has no known id",
		)
	}

	for _, name := range in.DNSNames {
		for _, zone := range in.HostedZones {
			out = append(out, "change records of "+name+" in hosted zone "+zone+whichIsNamed)
		}

		if len(in.HostedZones) == 0 {
			out = append(out, "change records of "+name+whichIsNamed+", in all hosted zones of the account")
		}
	}

	return out
}

// listIssuer returns the rights to the issuer of the tokens of service accounts.
func listIssuer(in iampolicy.Input) []string {
	if in.Issuer == "" {
		return nil
	}

	verb := "change and delete"
	if in.ReadOnly {
		verb = "read"
	}

	return []string{
		verb + " the OpenID Connect provider " + iampolicy.ProviderARN(in),
		verb + " the cluster's documents of the issuer in " + locationOf(in.Discovery) + whichIsNamed,
	}
}

// locationOf returns the URL of a store.
func locationOf(st iampolicy.StoreLocation) string {
	if st.Prefix == "" {
		return "s3://" + st.Bucket
	}

	return "s3://" + st.Bucket + "/" + st.Prefix
}

// listExisting returns the rights to the resources of others that the manifests name by their ids.
func listExisting(in iampolicy.Input) []string {
	var out []string
	add := func(before string, names []string, after string) {
		for _, name := range names {
			out = append(out, before+name+whichIsNamed+after)
		}
	}
	if in.Existing.VPC != "" {
		add("create parts of the cluster in ", []string{in.Existing.VPC}, "")
	}

	add("start machines with ", in.Existing.ProfileRoles, ": they get all its permissions")
	add("attach ", in.Existing.ManagedPolicies, ", to roles of the cluster, within their boundary")
	add("start machines and load balancers in ", in.Existing.Subnets, "")
	add("start machines with ", in.Existing.SecurityGroups, "")
	add("give NAT gateways the address ", in.Existing.Addresses, "")
	add("peer with ", in.PeerVPCs, "")
	add("route from ", in.RouteTables, ", to the cluster")

	return out
}

// limitToCluster leaves out what [listElsewhere] returns.
func limitToCluster(in *iampolicy.Input, state []iampolicy.StoreLocation) {
	in.Stores = state
	in.CreatesZones = false
	in.InterfaceEndpoints = false
	in.DNSNames = nil
	in.HostedZones = nil
	in.Issuer = ""
	in.Discovery = iampolicy.StoreLocation{}
	in.Existing = iampolicy.ExistingResources{}
	in.PeerVPCs = nil
	in.RouteTables = nil
}
