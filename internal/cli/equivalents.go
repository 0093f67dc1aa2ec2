// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Commands that several words lead to.
const (
	useShow    = "slipway get clusters NAME -o yaml"
	useGroups  = "slipway get groups NAME"
	useExport  = "slipway export kubeconfig NAME"
	useHealthy = "slipway validate cluster NAME"
	useEdit    = "slipway edit group GROUP --name NAME, then: slipway apply NAME"
	useAdd     = "slipway replace -f FILE with one InstanceGroup more, then: slipway apply NAME"
	useAccess  = "slipway iam operator-policy"
)

// equivalentCommands returns the commands of Slipway for what users of kops, eksctl, kubectl and Terraform
// type. Keys are the words after "slipway". The hint of a longer key is preferred.
func equivalentCommands() map[string]string {
	out := map[string]string{}
	for _, words := range []map[string]string{kopsCommands(), eksctlCommands(), terraformCommands(), otherCommands()} {
		maps.Copy(out, words)
	}

	return out
}

// kopsCommands are the words of kops.
func kopsCommands() map[string]string {
	return map[string]string{
		"update":                  "slipway apply NAME",
		"reconcile":               "slipway apply NAME",
		"get assets":              "slipway assets --help",
		"get keypairs":            useExport,
		"export kubecfg":          useExport,
		"create ig":               useAdd,
		"create instancegroup":    useAdd,
		"create instancegroups":   useAdd,
		"delete instance":         "kubectl drain NODE, and terminate its instance: its group starts another one",
		"toolbox":                 "slipway support-bundle NAME",
		"toolbox dump":            "slipway support-bundle NAME",
		"toolbox template":        "slipway render --help",
		"toolbox instance-select": "slipway edit group GROUP --name NAME, and set machineType",
		"set":                     "slipway edit cluster NAME",
		"unset":                   "slipway edit cluster NAME",
	}
}

// commandsWithoutEquivalent tells users of kops what there is in place of commands that Slipway does not have. Keys are
// as those of [equivalentCommands].
func commandsWithoutEquivalent() map[string]string {
	const authorities = "there is no command for it: machines renew their own certificates, and authorities are not rotated"
	const secrets = "slipway has no secrets to manage: it keeps keys sealed in the state store; for access: slipway export kubeconfig NAME"

	return map[string]string{
		"promote":          authorities,
		"promote keypair":  authorities,
		"distrust":         authorities,
		"distrust keypair": authorities,
		"create keypair":   authorities,
		"rotate":           authorities,
		"get secret":       secrets,
		"get secrets":      secrets,
		"create secret":    secrets,
		"delete secret":    secrets,
	}
}

// eksctlCommands are the words of eksctl.
func eksctlCommands() map[string]string {
	return map[string]string{
		"create nodegroup":         useAdd,
		"get nodegroup":            useGroups,
		"get nodegroups":           useGroups,
		"scale":                    useEdit,
		"scale nodegroup":          useEdit,
		"upgrade nodegroup":        "slipway rolling-update cluster NAME",
		"drain":                    "kubectl drain NODE",
		"drain nodegroup":          "kubectl drain NODE, for each node of the group",
		"utils":                    "slipway --help",
		"utils write-kubeconfig":   useExport,
		"utils describe-stacks":    "slipway history NAME",
		"utils schema":             "slipway create --help",
		"get iamidentitymapping":   useAccess,
		"create iamserviceaccount": useAccess,
		"enable":                   "slipway edit cluster NAME",
	}
}

// terraformCommands are the words of Terraform.
func terraformCommands() map[string]string {
	return map[string]string{
		"destroy":      "slipway delete cluster NAME",
		"init":         "slipway state init",
		"refresh":      "slipway drift NAME",
		"show":         useShow,
		"output":       useShow,
		"force-unlock": "slipway unlock NAME",
		"fmt":          "slipway get clusters NAME -o yaml, which prints fields in the order of the reference",
		"import":       "slipway create -f FILE; existing VPCs, subnets and zones are named in the manifest",
		"graph":        "slipway render diagram NAME",
		"console":      "slipway render --help",
		"taint":        "slipway rolling-update cluster NAME",
		"workspace":    "slipway get clusters; --state chooses the store",
		"state list":   useShow,
		"state show":   useShow,
		"state pull":   useShow,
		"state rm":     "slipway delete cluster NAME",
		"state mv":     "slipway edit cluster NAME",
		"providers":    "slipway version",
	}
}

// otherCommands are the words of kubectl, and words that other tools have.
func otherCommands() map[string]string {
	return map[string]string{
		"describe":       useShow,
		"list":           "slipway get clusters",
		"ls":             "slipway get clusters",
		"status":         useHealthy,
		"check":          useHealthy,
		"kubeconfig":     useExport,
		"get kubeconfig": useExport,
		"get pods":       "kubectl get pods --all-namespaces",
		"doctor":         "slipway preflight NAME",
		"region delete":  "slipway region destroy",
		"region up":      "slipway region start",
		"region down":    "slipway region stop",
		"install":        "slipway create cluster NAME",
		"deploy":         "slipway apply NAME",
		"up":             "slipway apply NAME",
		"down":           "slipway delete cluster NAME",
	}
}

// explainMissingCommand returns why there is no command for words below cmd, and "" if nothing is known.
func explainMissingCommand(cmd *cobra.Command, words []string) string {
	parent := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
	for n := len(words); n > 0; n-- {
		key := strings.Join(append(append([]string{}, parent...), words[:n]...), " ")
		if why, ok := commandsWithoutEquivalent()[key]; ok {
			return why
		}
	}

	return ""
}

// findEquivalent returns what to type instead of words below cmd, and "" if there is no equivalent. A name
// that follows the words takes the place of NAME. Words that cmd does have are no equivalent's.
func findEquivalent(cmd *cobra.Command, words []string) string {
	parent := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
	table := equivalentCommands()

	for n := len(words); n > 0; n-- {
		key := strings.Join(append(append([]string{}, parent...), words[:n]...), " ")
		use, ok := table[key]
		if !ok {
			continue
		}

		rest := words[n:]
		if len(rest) > 0 && isKindWord(rest[0]) {
			rest = rest[1:]
		}

		if len(rest) > 0 && !namesGroup(key) && !strings.Contains(use, "GROUP") {
			use = strings.ReplaceAll(use, "NAME", shellQuote(rest[0]))
		}

		return use
	}

	return ""
}

// namesGroup reports whether what follows these words is the name of a group, not of a cluster.
func namesGroup(words string) bool {
	_, kind, _ := strings.Cut(words, " ")

	return isKindWord(kind) && !strings.HasPrefix(kind, "cluster")
}

// isKindWord reports whether a word names a kind of thing, as in "kops update cluster NAME".
func isKindWord(word string) bool {
	switch word {
	case "cluster", "clusters", "ig", "instancegroup", "instancegroups", "nodegroup", "nodegroups":
		return true
	}

	return false
}

// equivalentFlags returns Slipway's names of flags of kops, eksctl and Terraform.
func equivalentFlags() map[string][]string {
	size := []string{"worker-count"}
	machineType := []string{"node-size"}

	return map[string][]string{
		"approve":             {"yes"},
		"auto-approve":        {"yes"},
		"force":               {"yes"},
		"cluster":             {"name"},
		"cluster-name":        {"name"},
		"state-store":         {"state"},
		"store":               {"state"},
		"nodes":               size,
		"workers":             size,
		"worker-nodes":        size,
		"node-count":          size,
		"nodes-min":           size,
		"node-type":           machineType,
		"instance-type":       machineType,
		"worker-size":         machineType,
		"master-size":         {"control-plane-size"},
		"master-count":        {"control-plane-count"},
		"control-plane-zones": {"zones"},
		"master-zones":        {"zones"},
		"availability-zones":  {"zones"},
		"version":             {"kubernetes-version"},
		"vpc-cidr":            {"network-cidr"},
		"config-file":         {"filename"},
		"file":                {"filename"},
		"format":              {"output"},
		"timeout":             {"wait", "lock-timeout"},
		"debug":               {"verbose"},
		"log-level":           {"verbose"},
		"dry":                 {"dry-run"},
		"preview":             {"dry-run"},
		"no-colour":           {"no-color"},
		"silent":              {"quiet"},
		"api-loadbalancer":    {"api-loadbalancer-type"},
		"instance-group":      {"group"},
		"instance-groups":     {"group"},
		"validation-timeout":  {"join-timeout"},
		"node-interval":       {"pause"},
		"post-drain-delay":    {"pause"},
	}
}

// flagsWithoutEquivalent tells users of kops what there is in place of flags that Slipway does not have.
func flagsWithoutEquivalent() map[string]string {
	const fields = "set fields in the manifests: slipway create cluster NAME --dry-run, then: slipway create -f FILE; " +
		"see: slipway explain cluster"

	return map[string]string{
		"set":                       fields,
		"unset":                     fields,
		"override":                  fields,
		"networking":                "set spec.networking.cni to flannel, amazon-vpc or cilium: slipway explain cluster.networking.cni",
		"cloud":                     "leave it out: AWS is the only cloud",
		"channel":                   "leave it out: slipway get versions lists the versions of Kubernetes",
		"cloudonly":                 "leave it out; without the Kubernetes API, terminate a machine in EC2: its group replaces it",
		"ssh-public-key":            "set spec.sshKey to the text of the key: slipway explain cluster.sshKey",
		"ssh-access":                "set spec.sshAccess: slipway explain cluster.sshAccess",
		"admin-access":              "set spec.api.access: slipway explain cluster.api.access",
		"dns-zone":                  "set spec.dnsZone: slipway explain cluster.dnsZone",
		"dns":                       "set spec.topology.dns.type: slipway explain cluster.topology.dns",
		"topology":                  "the types of the subnets decide that: slipway explain cluster.networking.subnets.type",
		"bastion":                   "add an InstanceGroup with role Bastion: slipway explain group.role",
		"node-volume-size":          "set spec.rootVolume.size of the group: slipway explain group.rootVolume.size",
		"control-plane-volume-size": "set spec.rootVolume.size of the group: slipway explain group.rootVolume.size",
		"image":                     "set spec.image of the group: slipway explain group.image",
		"cloud-labels":              "set spec.tags: slipway explain cluster.tags",
		"encrypt-etcd-storage":      "leave it out: all volumes are encrypted",
		"target":                    "for Terraform: slipway render terraform NAME; for CloudFormation: slipway apply NAME --via cloudformation",
	}
}

// hintForUnknownFlag returns the flag of cmd that was probably meant, or help.
func hintForUnknownFlag(cmd *cobra.Command, given, help string) string {
	for _, name := range equivalentFlags()[given] {
		if cmd.Flags().Lookup(name) != nil {
			return "use: --" + name
		}
	}

	if instead := flagsWithoutEquivalent()[given]; instead != "" {
		return instead
	}

	var names []string

	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})

	if near := diag.Nearest(given, names); near != "" {
		return "did you mean --" + near + "?"
	}

	return help
}
