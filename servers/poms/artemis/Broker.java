import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.activemq.artemis.core.config.impl.SecurityConfiguration;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;
import org.apache.activemq.artemis.spi.core.security.jaas.InVMLoginModule;

/** Runs a broker until SIGTERM. Arguments: broker.xml, and a file of users with their passwords, which may be missing. */
public class Broker {
    public static void main(String[] arguments) throws Exception {
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfigResourcePath(Path.of(arguments[0]).toUri().toString());
        Path users = Path.of(arguments[1]);
        if (Files.exists(users)) {
            SecurityConfiguration known = new SecurityConfiguration();
            Properties passwords = new Properties();
            passwords.load(Files.newBufferedReader(users));
            for (String name : passwords.stringPropertyNames()) {
                known.addUser(name, passwords.getProperty(name));
                known.addRole(name, "user");
            }
            broker.setSecurityManager(new ActiveMQJAASSecurityManager(InVMLoginModule.class.getName(), known));
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                broker.stop();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        broker.start();
        Thread.currentThread().join();
    }
}
