package bed

import (
	"context"

	"google.golang.org/grpc"
)

// AgentSocket is the local socket of the agent.
const AgentSocket = "/run/diapause/agent.sock"

// agentName is the name of the agents' log.
const agentName = "agent"

// Agent is a running diapause-agent.
type Agent struct{ *Process }

// StartAgent starts the agent with the given flags besides its defaults, and
// returns when its local socket takes connections. All agents of a bed write
// one log, and are in one cgroup. An agent that has been killed may be followed by another.
func (b *Bed) StartAgent(ctx context.Context, args ...string) (*Agent, error) {
	a, err := startAgent(ctx, base, args)
	if err != nil {
		return nil, err
	}
	b.agents = append(b.agents, a)
	return a, enterCgroup(b.CgroupParent+agentCgroup, a.cmd.Process.Pid)
}

func startAgent(ctx context.Context, s space, args []string) (*Agent, error) {
	p, err := s.startProcess(agentName, "diapause-agent", args...)
	if err != nil {
		return nil, err
	}
	if err := p.ready(ctx, p.serves(s.path(AgentSocket))); err != nil {
		p.Kill()
		return nil, err
	}
	return &Agent{p}, nil
}

// DialAgent makes a connection to whichever agent serves [AgentSocket] at the time of
// a call. The caller closes it.
func (b *Bed) DialAgent() (*grpc.ClientConn, error) { return dial(AgentSocket) }
