// SPDX-License-Identifier: Apache-2.0

package plan

// ownership says how far a property is ours (D11).
type ownership int

const (
	alwaysManaged   ownership = iota // kept as the graph says
	managedAtCreate                  // set when the resource is made, then left to others
)

// replacement says what an immutable change does.
type replacement int

const (
	deleteFirst       replacement = iota // the old one goes before the new one comes: both cannot be at once
	createFirst                          // the new one comes first: nothing is without it meanwhile
	refuseReplacement                    // it is refused, with a hint (D4)
)

// kindPolicy is how the planner treats one kind.
type kindPolicy struct {
	replacement replacement
	refusalHint string            // for refuse
	growOnly    string            // a property that can only grow
	holdsData   bool              // holds data that cannot be made again
	notes       map[Action]string // what a reader of the plan should know
	ownership   map[string]ownership
}

// policyOf is the one table of ownership and protection.
func policyOf(kind string) kindPolicy {
	const rename = "give the new one another name in the manifest, move what uses it, then remove the old one"
	switch kind {
	case "vpc":
		return kindPolicy{
			replacement: refuseReplacement,
			refusalHint: "a cluster keeps its network; make a new cluster for another one",
		}

	case "subnet",
		"security-group",
		"iam-role",
		"iam-instance-profile",
		"target-group",
		"launch-template",
		"autoscaling-group":
		return kindPolicy{
			replacement: refuseReplacement,
			refusalHint: rename,
			ownership:   propertyOwnership(kind),
			notes:       notesOf(kind),
		}

	case "load-balancer":
		return kindPolicy{
			replacement: refuseReplacement,
			refusalHint: "its name and address are in every kubeconfig; make a new cluster to change it",
		}

	case "volume":
		return kindPolicy{
			replacement: refuseReplacement,
			refusalHint: "an etcd volume keeps its zone and its encryption",
			holdsData:   true,
			growOnly:    "Size",
			notes:       map[Action]string{Delete: "the etcd data on it is lost"},
		}

	case "kms-key":
		return kindPolicy{
			replacement: refuseReplacement,
			refusalHint: rename,
			holdsData:   true,
			notes:       map[Action]string{Delete: "scheduled: whatever it encrypted is lost when it goes"},
		}

	case "route-table", "eip":
		return kindPolicy{replacement: createFirst}
	}

	return kindPolicy{}
}

func propertyOwnership(kind string) map[string]ownership {
	if kind == "autoscaling-group" {
		// An autoscaler moves it between MinSize and MaxSize; AWS itself keeps it within them.
		return map[string]ownership{"DesiredCapacity": managedAtCreate}
	}

	return nil
}

func notesOf(kind string) map[Action]string {
	if kind == "launch-template" {
		return map[Action]string{
			Update: "a new version; running machines keep theirs until they are replaced",
		}
	}

	return nil
}

func ownershipOf(kind, property string) ownership { return policyOf(kind).ownership[property] }
