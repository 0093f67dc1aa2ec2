// SPDX-License-Identifier: Apache-2.0

package imdsguard

import "strings"

// refusePort refuses a connection at once.
const refusePort = "reject with tcp reset"

// portRules are the rules for a TCP port that only this process reaches. The zero value has none.
type portRules struct {
	port string
	// pods is the address range of the pods.
	pods string
	// links is a pattern for the names of the links of pods, in the place of pods.
	links string
}

// newConnection returns the condition that a packet asks for a connection to the port.
func (p portRules) newConnection() string {
	return "tcp dport " + p.port + " tcp flags & (syn | ack) == syn"
}

// outputRules returns the rules that send connections of programs of this machine to the chain
// join. Those to the machine itself stay: the API server asks its own machine. Pods may listen at
// the port.
func (p portRules) outputRules() string {
	if p.links != "" {
		return "\t\toifname != \"lo\" oifname != \"" + p.links + "\" " + p.newConnection() + " jump join\n"
	}

	var b strings.Builder
	for _, to := range []string{"ip daddr != " + p.pods, "meta nfproto ipv6"} {
		b.WriteString("\t\toifname != \"lo\" " + to + " " + p.newConnection() + " jump join\n")
	}

	return b.String()
}

// chains returns the chains that refuse connections of pods: to other machines where they leave,
// and to this one where they arrive. A pod has an address of the pods' range, and so has this
// machine as their gateway; IPv6 has no route to the port.
func (p portRules) chains() string {
	var b strings.Builder
	refuse := func(from string) {
		b.WriteString("\t\t" + from + " " + p.newConnection() + " counter " + refusePort + "\n")
	}

	const ipv6 = "meta nfproto ipv6"

	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority -10; policy accept;\n")
	if p.links != "" {
		// A machine forwards for its pods alone, so what does not go to one of them comes from a pod, here or, through a port of a
		// Service, elsewhere. A pod reaches the port only of pods on its own machine.
		refuse(`oifname != "` + p.links + `"`)
		b.WriteString("\t}\n\n\tchain input {\n\t\ttype filter hook input priority -10; policy accept;\n")
		refuse(`iifname "` + p.links + `"`)
		b.WriteString("\t}\n")

		return b.String()
	}

	refuse("ip daddr != " + p.pods)
	refuse(ipv6)
	b.WriteString("\t}\n\n\tchain input {\n")
	b.WriteString("\t\ttype filter hook input priority -10; policy accept;\n")
	refuse("ip saddr " + p.pods)
	refuse("ip daddr " + p.pods)

	// No reset would get back to a link-local address.
	b.WriteString("\t\tiifname != \"lo\" " + ipv6 + " " + p.newConnection() + " counter drop\n\t}\n")

	return b.String()
}
